"""Metrics of several processes in one text."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from needlepoint.service.metrics import with_processes

TEXT = """# HELP rows_total Rows in responses.
# TYPE rows_total counter
rows_total{{route="a \\"b\\""}} {rows}
# HELP seconds Time.
# TYPE seconds histogram
seconds_bucket{{le="1.0"}} {rows}
seconds_bucket{{le="+Inf"}} {rows}
seconds_count {rows}
seconds_sum 2.5
"""


def test_each_process_keeps_its_own_numbers() -> None:
    text = with_processes({"11": TEXT.format(rows=4), "12": TEXT.format(rows=7)}).decode()
    found = {
        (sample.name, sample.labels["process"], sample.labels.get("le"), sample.labels.get("route")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    for process, rows in (("11", 4), ("12", 7)):
        assert found["rows_total", process, None, 'a "b"'] == rows
        assert found["seconds_bucket", process, "+Inf", None] == found["seconds_count", process, None, None] == rows
    assert len(found) == 10 and text.count("# TYPE seconds histogram") == 1
