-- Old history goes row by row; what stands stays. The index finds the shares of a row that goes.

-- JSON: which rules refused how many clusters. NULL = not known.
ALTER TABLE decisions ADD COLUMN rejections TEXT;

CREATE INDEX changes_by_seq ON changes (seq);
