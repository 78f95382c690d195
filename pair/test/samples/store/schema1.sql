-- A store of schema 1, as PAIR made it until clusters came.
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "about" VALUES('version','0.1.0');
CREATE TABLE choices (key TEXT PRIMARY KEY, value BLOB NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO "choices" VALUES('proxy.facades',X'5B226F6C6C616D61225D',1764460800000);
CREATE TABLE engine_children (engine TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO "engine_children" VALUES('ollama',X'7B7D');
CREATE TABLE engine_models (engine TEXT PRIMARY KEY, at INTEGER NOT NULL, record BLOB NOT NULL);
INSERT INTO "engine_models" VALUES('ollama',1764460800000,X'7B7D');
CREATE TABLE identity (only INTEGER PRIMARY KEY CHECK (only = 1), uuid TEXT NOT NULL, digest TEXT NOT NULL);
INSERT INTO "identity" VALUES(1,'7b1c2f0e-4a5d-4c3b-8e2f-0123456789ab','sha256:abababababababababababababababababababababababababababababababab');
CREATE TABLE job_history (
            origin TEXT NOT NULL,
            id TEXT NOT NULL,
            seq INTEGER NOT NULL,
            completed_at INTEGER NOT NULL,
            received_at INTEGER NOT NULL,
            record BLOB NOT NULL,
            PRIMARY KEY (origin, id)
        );
INSERT INTO "job_history" VALUES('7b1c2f0e-4a5d-4c3b-8e2f-0123456789ab','a.1',1,1764460801000,1764460801000,X'7B7D');
CREATE INDEX job_history_received ON job_history (received_at);
CREATE INDEX job_history_completed ON job_history (completed_at);
COMMIT;
