-- What each decision read, by the number of its row: the differences from the inputs of an earlier decision, compressed.
CREATE TABLE inputs (
    seq             INTEGER PRIMARY KEY,
    frame           BLOB    NOT NULL
);
