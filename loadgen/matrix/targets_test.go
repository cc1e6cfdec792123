package matrix

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
)

// A connection string is read from a file, such as a mounted Secret's key; what is wrong with it names the file of
// targets, the class and the field.
func TestDSNFile(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const dsn = "postgresql://app:it's%2Fsecret@postgresql-r3-rw:5432/app"
	uri := write("uri", dsn+"\n")
	write("empty", " \n")
	block := write("block.yaml", "targets:\n  - storageclass: a\n    dsn: |\n      "+dsn+"\n")
	if targets, err := ReadTargets(block); err != nil || targets[0].DSN != dsn {
		t.Errorf("a block's dsn is %+v, %v", targets, err)
	}
	for _, name := range []string{uri, "uri"} { // a relative path starts at the targets' folder
		got, err := ReadTargets(write("targets.yaml", "targets:\n  - {storageclass: r3, dsn_file: "+name+"}\n"))
		if err != nil || len(got) != 1 || got[0].DSN != dsn {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for fields, want := range map[string]string{
		"dsn_file: gone":             "storageclass r3: dsn_file: open " + filepath.Join(folder, "gone"),
		"dsn_file: empty":            "storageclass r3: dsn_file: " + filepath.Join(folder, "empty") + " is empty",
		"dsn_file: uri, dsn: host=a": "storageclass r3: both dsn and dsn_file are given",
	} {
		path := write("targets.yaml", "targets:\n  - {storageclass: local}\n  - {storageclass: r3, "+fields+"}\n")
		if _, err := ReadTargets(path); err == nil || !strings.HasPrefix(err.Error(), path+": "+want) {
			t.Errorf("%s: error %v, want %s: %s", fields, err, path, want)
		}
	}
	if _, err := ReadTargets(write("targets.yaml", "targets:\n  - {storageclass: r3, dsn_file: gone}\n")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// Await returns once a database answers, and names the class of one that does not.
func TestAwait(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	gone := Target{StorageClass: "r3", Engine: "postgres", DSN: "host=" + t.TempDir()}
	began := time.Now()
	err := Await(t.Context(), []Target{{StorageClass: "files"}, gone}, 1500*time.Millisecond, log)
	if err == nil || !strings.Contains(err.Error(), "the database of storageclass r3 did not answer within 1.5s") || time.Since(began) > time.Minute {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	// A database that starts later.
	db := testdb.StartPostgres(t)
	db.Stop()
	late := []Target{{StorageClass: "r3", Engine: "postgres", DSN: db.DSN()}}
	answered := make(chan error, 1)
	go func() { answered <- Await(t.Context(), late, time.Minute, log) }()
	select {
	case err := <-answered:
		t.Fatalf("nobody listens, and Await returned %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	db.Start()
	if err := <-answered; err != nil {
		t.Error(err)
	}
	// A matrix begins with that.
	r := Runner{Scale: 1, MaxClients: 1, Least: time.Second, Wait: time.Second, Log: log}
	if _, err := r.Run(t.Context(), "wal", []Target{gone}); err == nil || !strings.Contains(err.Error(), "--wait: the database of storageclass r3") {
		t.Errorf("a matrix on a database that does not answer: %v", err)
	}
}
