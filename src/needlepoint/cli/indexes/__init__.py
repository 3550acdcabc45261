"""Commands about indexes.

create_index, drop_index   `needle create-index`, `drop-index`
index                      `needle index build`
store                      `needle store copy`
sync, rebuild, indexer     `needle sync`, `rebuild`, `indexer`: make indexes of new files, all files, announced files
verify, repair, advise     `needle verify`, `repair`, `advise`
"""
