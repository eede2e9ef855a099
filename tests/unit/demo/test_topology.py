"""Random companies: of any size, layered, and scheduled so that a usual day is a good day."""

import pytest

from correlator.demo.parts import DAY, Company, Tool
from correlator.demo.testing import end
from correlator.demo.topology import LAYERS, random_company

COMPANIES = [random_company(seed, jobs) for seed, jobs in enumerate((5, 5, 9, 20, 40, 80, 200))]


@pytest.mark.parametrize("company", COMPANIES)
def test_jobs_read_only_what_earlier_jobs_write(company: Company) -> None:
    written: set[str] = set()
    for job in company.jobs.values():
        assert {each.table for each in job.inputs} <= written
        assert job.is_extract == (company.tables[job.output].layer == 0)
        written.add(job.output)
    assert {table.layer for table in company.tables.values()} == set(range(len(LAYERS)))


@pytest.mark.parametrize("company", COMPANIES)
def test_a_pipeline_begins_when_those_it_reads_from_are_done(company: Company) -> None:
    for job in company.jobs.values():
        for each in job.inputs:
            writer = company.producers[each.table]
            if writer.pipeline != job.pipeline and writer.period == job.period:
                assert end(company, writer.pipeline) < company.pipelines[job.pipeline].offset


@pytest.mark.parametrize("company", COMPANIES)
def test_columns_come_from_columns_that_are_there(company: Company) -> None:
    for job in company.jobs.values():
        assert len({each.name for each in job.fields}) == len(job.fields)
        for each in job.fields:
            if each.source is not None:
                writer = company.producers[job.inputs[each.source[0]].table]
                assert each.source[1] in {theirs.name for theirs in writer.fields}


@pytest.mark.parametrize(("seed", "jobs"), list(enumerate((5, 17, 60, 200))))
def test_a_company_has_as_many_jobs_as_asked_for(seed: int, jobs: int) -> None:
    assert len(random_company(seed, jobs).jobs) == jobs


def test_large_companies_have_every_tool_fan_in_fan_out_diamonds_and_both_paces() -> None:
    company = COMPANIES[-1]
    assert len({job.tool for job in company.jobs.values()}) >= 3
    assert {job.period for job in company.jobs.values()} == {3600, DAY}
    readers = [each.table for job in company.jobs.values() for each in job.inputs]
    assert max(readers.count(table) for table in set(readers)) > 2
    assert max(len(job.inputs) for job in company.jobs.values()) > 2
    assert any(_is_diamond(company, job) for job in company.jobs)
    assert any(table.written_as != table.read_as for table in company.tables.values())


def test_every_tool_is_somewhere() -> None:
    assert {job.tool for company in COMPANIES for job in company.jobs.values()} == set(Tool)


def _is_diamond(company: Company, key: str) -> bool:
    """Whether two inputs of a job lead back to one table."""
    inputs = [each.table for each in company.jobs[key].inputs]
    roots = [_above(company, table) for table in inputs]
    return any(one & other for index, one in enumerate(roots) for other in roots[index + 1 :])


def _above(company: Company, table: str) -> set[str]:
    return {table}.union(*(_above(company, each.table) for each in company.producers[table].inputs))
