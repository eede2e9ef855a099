"""The real PostgreSQL of the integration tests, for the properties that are about tables."""

from tests.integration.conftest import database, migrated_template, postgres

__all__ = ["database", "migrated_template", "postgres"]
