"""Queues that carry events from writers to indexers, at least once.

queue          what a queue does, and the one in SQLite
events         a batch added these files to a table and removed those
notifications  what a message says, ours or S3's
sqs            SQS as the queue, through boto3
sqs_address    which queue a URL means
sqs_errors     what SQS refuses, in our words
"""
