"""Events and directories in, complete indexes out.

indexer         sync, look, catch up
event_consumer  one event of the queue after the other
build           files become cards, runs and payloads
payloads        payloads of one file
pools           work in processes
backfill        work elsewhere, such as Spark tasks
range_merge     overlapping runs become disjoint ones
sweep           what indexes know of files that are gone
"""
