-- Roles for history. Run once as an administrator in its database, before the controller's first start:
--   psql -d history -f deploy/postgres/roles.sql
-- Then create a login for the controller. Its tables belong to the role, not to the login:
--   CREATE ROLE atoll LOGIN PASSWORD '...' IN ROLE atoll_writer; ALTER ROLE atoll SET role = atoll_writer;
-- and a login for each reader (person or dashboard):
--   CREATE ROLE grafana LOGIN PASSWORD '...' IN ROLE atoll_reader;
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'atoll_writer') THEN
        CREATE ROLE atoll_writer NOLOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'atoll_reader') THEN
        CREATE ROLE atoll_reader NOLOGIN;
    END IF;
END
$$;

-- The writer creates and migrates the schema, and creates the partitions.
GRANT USAGE, CREATE ON SCHEMA public TO atoll_writer;
GRANT USAGE ON SCHEMA public TO atoll_reader;
-- Readers may read every table that the writer creates later.
ALTER DEFAULT PRIVILEGES FOR ROLE atoll_writer IN SCHEMA public GRANT SELECT ON TABLES TO atoll_reader;
