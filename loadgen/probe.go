package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/alecthomas/units"

	"github.com/plumbline/plumbline/loadgen/predict"
	"github.com/plumbline/plumbline/loadgen/predict/probe"
)

// probeRun is the command line of `loadgen probe`.
type probeRun struct {
	config   probe.Config
	class    predict.Class
	size     units.Base2Bytes
	fileSize units.Base2Bytes
	pauses   []time.Duration
	output   string
}

func (p *program) addProbe() {
	var r probeRun
	c := p.add("probe", "Measure what a folder's storage does when a database's log is written to it: syncs, writes and reads, one by one, for loadgen predict.",
		func(ctx context.Context, _ *slog.Logger) error { return r.run(ctx, os.Stdout) },
		"loadgen probe --directory=/mnt/claim --storageclass=longhorn-r3 --output=longhorn-r3.json",
		"loadgen probe --directory=/mnt/claim --storageclass=longhorn-r3 --pause=20ms --pause=1ms --windows=12 --window=10s --output=longhorn-r3.json",
		"loadgen probe --directory=/mnt/claim --storageclass=longhorn-r3 --readers=4 --file-size=4GiB --output=longhorn-r3.json")
	c.Flag("directory", "Folder on the storage to measure; a folder is made in there, and removed.").Required().StringVar(&r.config.Directory)
	c.Flag("storageclass", "The storage class that it is on.").Required().StringVar(&r.class.Name)
	c.Flag("replicas", "How many copies the class keeps.").IntVar(&r.class.Replicas)
	c.Flag("size", "Size of a write and of a read.").Default("8KiB").BytesVar(&r.size)
	c.Flag("pause", "Mean pause from a sync's end to the next write, and from one read to the next: choose it so that the rate is the workload's. Repeatable: windows of each by turns.").
		Default("5ms", "0s").DurationListVar(&r.pauses)
	c.Flag("readers", "How many read at the same time, at random, what no cache of this machine has; 0 reads nothing.").Default("0").IntVar(&r.config.Readers)
	c.Flag("file-size", "Size of the file that is read; more than the storage's own caches, if these are not to answer.").Default("256MiB").BytesVar(&r.fileSize)
	c.Flag("window", "Length of a window.").Default("5s").DurationVar(&r.config.Window)
	c.Flag("windows", "How many windows of each pause: how much they differ is how sure a prediction is.").Default("8").IntVar(&r.config.Windows)
	c.Flag("output", "File to write, for loadgen predict --from-class-file and --to-class-file; standard output if empty.").StringVar(&r.output)
}

func (r *probeRun) run(ctx context.Context, out io.Writer) error {
	if r.class.Replicas < 0 {
		return errors.New("--replicas must not be below 0")
	}
	err := checkFiles(r.output)
	if err != nil {
		return err
	}
	r.config.Size, r.config.FileSize, r.config.Pauses = int(r.size), int64(r.fileSize), r.pauses
	if r.class.Windows, err = probe.Measure(ctx, r.config); err != nil {
		return err
	}
	write := func(w io.Writer) error { return json.NewEncoder(w).Encode(r.class) }
	if r.output != "" {
		return writeFile(r.output, write)
	}
	return write(out)
}
