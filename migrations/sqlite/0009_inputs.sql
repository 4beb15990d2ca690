-- What each decision read: the differences from the inputs of an earlier decision, compressed. NULL = not stored.
ALTER TABLE decisions ADD COLUMN inputs BLOB;
