-- "Who was on a member at a time" reads one stretch of each of two tables, and looks no decision up. Rows of earlier versions
-- lack what is new, and their decisions are looked up as before.

-- Of which decision a change is, and of which workload. NULL in rows that an earlier version wrote.
ALTER TABLE changes ADD COLUMN decision TEXT;
ALTER TABLE changes ADD COLUMN namespace TEXT;
ALTER TABLE changes ADD COLUMN workload_kind TEXT;
ALTER TABLE changes ADD COLUMN workload_name TEXT;

-- Times at which it was written down who stood where: who was on a member later is that and the changes since. What
-- was decided up to then and recorded later makes a standing invalid, until it is written anew.
CREATE TABLE standings (
    at              INTEGER PRIMARY KEY, -- microseconds since 1970
    seq             INTEGER NOT NULL,    -- of the last decision up to then
    shares          INTEGER NOT NULL,    -- how many stood
    valid           INTEGER NOT NULL
);

CREATE TRIGGER decisions_late AFTER INSERT ON decisions WHEN NEW.decided_at <= (SELECT max(at) FROM standings)
BEGIN
    UPDATE standings SET valid = 0 WHERE at >= NEW.decided_at AND valid;
END;

-- The shares that stood at the time of a standing, each with the decision that set it.
CREATE TABLE standing_shares (
    at              INTEGER NOT NULL,
    cluster         TEXT    NOT NULL,
    binding_uid     TEXT    NOT NULL,
    decided_at      INTEGER NOT NULL,
    seq             INTEGER NOT NULL,
    replicas        INTEGER NOT NULL,
    decision        TEXT    NOT NULL,
    namespace       TEXT    NOT NULL,
    workload_kind   TEXT    NOT NULL,
    workload_name   TEXT    NOT NULL,
    PRIMARY KEY (at, cluster, binding_uid)
) WITHOUT ROWID;

-- The changes of a binding are found by its decisions.
DROP INDEX changes_by_binding;
