"""The registry published in the lake, so that any machine can read the lake without a server.

    <root>/.needlepoint/
        registry/manifest.json                 replaced by compare-and-swap; names all that a reader needs
        registry/checkpoint-<sequence>-….zst   the registry at a sequence number
        registry/delta-<first>-<sequence>-….zst  what changed since an earlier one
        cards/….pack, indexes/<id>/….pack      what the registry refers to, uploaded before the manifest

manifest     what the manifest says, and which objects bring a reader up to date
copies       checkpoints and deltas: made from a registry, and applied to a copy of it
place        files or objects of the lake under `.needlepoint`
publisher    the side that writes the registry
store_state  what a store remembers of what it published
checking     finds objects that are gone or damaged
sweeping     removes objects that nothing refers to any more
follower     the side that reads: a copy of the registry on this machine, kept up to date
"""

from needlepoint.tables.published.follower import Follower
from needlepoint.tables.published.manifest import FORMAT
from needlepoint.tables.published.place import PublishedPlace
from needlepoint.tables.published.publisher import Publisher, PublishState
from needlepoint.tables.published.store_state import StoreState, identity_of

__all__ = ["FORMAT", "Follower", "PublishState", "PublishedPlace", "Publisher", "StoreState", "identity_of"]
