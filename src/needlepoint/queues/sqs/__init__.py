"""SQS as the queue. A lake imports it when its queue is there.

queue    the queue, through boto3
address  parses the URL of a queue
errors   errors of SQS, translated
"""

from needlepoint.queues.sqs.queue import SqsQueue

__all__ = ["SqsQueue"]
