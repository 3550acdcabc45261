"""Objects in S3 and compatible stores. Importing it loads obstore, so functions that need it import it themselves.

urls  URLs of objects, and the endpoint that answers for them
s3    lists, reads, writes and removes objects, through obstore: the only importer of it
"""

from needlepoint.objects.remote.s3 import delete_objects, get_parts, list_objects, store_of, upload
from needlepoint.objects.remote.urls import SCHEME, checked_url, endpoint, split_url

__all__ = [
    "SCHEME",
    "checked_url",
    "delete_objects",
    "endpoint",
    "get_parts",
    "list_objects",
    "split_url",
    "store_of",
    "upload",
]
