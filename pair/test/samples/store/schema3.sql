-- A store of schema 3, as PAIR made it until learned speeds were kept over a restart.
PRAGMA user_version = 3;
BEGIN TRANSACTION;
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "about" VALUES('version','0.3.0');
CREATE TABLE choices (key TEXT PRIMARY KEY, value BLOB NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO "choices" VALUES('proxy.facades',X'5B226F6C6C616D61225D',1764460800000);
CREATE TABLE cluster_archive (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            cluster TEXT NOT NULL UNIQUE,
            evidence BLOB NOT NULL,
            members BLOB NOT NULL
        );
INSERT INTO "cluster_archive" VALUES(1,'b7d0f6f0-0000-4000-8000-000000000002',X'05',X'5B5D');
CREATE TABLE engine_children (engine TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO "engine_children" VALUES('ollama',X'7B7D');
CREATE TABLE engine_models (engine TEXT PRIMARY KEY, at INTEGER NOT NULL, record BLOB NOT NULL);
INSERT INTO "engine_models" VALUES('ollama',1764460800000,X'7B7D');
CREATE TABLE identity (only INTEGER PRIMARY KEY CHECK (only = 1), uuid TEXT NOT NULL, digest TEXT NOT NULL, epoch INTEGER NOT NULL DEFAULT 0, counter INTEGER NOT NULL DEFAULT 0);
INSERT INTO "identity" VALUES(1,'7b1c2f0e-4a5d-4c3b-8e2f-0123456789ab','sha256:abababababababababababababababababababababababababababababababab',3,7);
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
CREATE TABLE manual_node (id TEXT PRIMARY KEY, address TEXT NOT NULL, port INTEGER NOT NULL, uuid TEXT, added_at INTEGER NOT NULL, last_ok_at INTEGER, UNIQUE (address, port)) WITHOUT ROWID;
INSERT INTO "manual_node" VALUES('a1b2c3','shed',14318,NULL,1764460800000,NULL);
CREATE TABLE membership (
            cluster TEXT PRIMARY KEY,
            state TEXT NOT NULL CHECK (state IN ('active', 'left', 'removed', 'abandoned')),
            since_at INTEGER NOT NULL
        ) WITHOUT ROWID
        ;
INSERT INTO "membership" VALUES('b7d0f6f0-0000-4000-8000-000000000001','active',1764460802000);
CREATE TABLE peer_address (uuid TEXT NOT NULL, service TEXT NOT NULL, address TEXT NOT NULL, port INTEGER NOT NULL, last_ok_at INTEGER NOT NULL, PRIMARY KEY (uuid, service, address, port)) WITHOUT ROWID;
INSERT INTO "peer_address" VALUES('b7d0f6f0-0000-4000-8000-000000000002','cl','192.168.1.20',14321,1764460800000);
CREATE TABLE statement (
            id BLOB PRIMARY KEY,
            cluster TEXT NOT NULL,
            kind INTEGER NOT NULL,
            signer BLOB NOT NULL,
            payload BLOB NOT NULL,
            signature BLOB NOT NULL,
            received_at INTEGER NOT NULL,
            source TEXT NOT NULL
        );
INSERT INTO "statement" VALUES(X'0101010101010101010101010101010101010101010101010101010101010101','b7d0f6f0-0000-4000-8000-000000000001',1,X'02',X'03',X'04',1764460802000,'own');
CREATE TABLE trust_audit (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            at INTEGER NOT NULL,
            event TEXT NOT NULL,
            actor TEXT,
            subject TEXT,
            cluster TEXT,
            detail TEXT NOT NULL
        );
INSERT INTO "trust_audit" VALUES(1,1764460802000,'founded',NULL,NULL,'b7d0f6f0-0000-4000-8000-000000000001','{}');
CREATE INDEX job_history_received ON job_history (received_at);
CREATE INDEX job_history_completed ON job_history (completed_at);
CREATE UNIQUE INDEX membership_active ON membership (state) WHERE state = 'active';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('cluster_archive',1);
INSERT INTO "sqlite_sequence" VALUES('trust_audit',1);
COMMIT;
