package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/manifests/lab/replicas"
	"github.com/plumbline/plumbline/manifests/lab/supervise"
)

// longhornFlags are what the processes of a Longhorn volume call this program with.
type longhornFlags struct {
	volume        replicas.Volume
	replicas      []string // address=folder=process
	engineProcess string
	process       int
}

// command adds a hidden command with these flags.
func (f *longhornFlags) command(app *kingpin.Application, name, help string) *kingpin.CmdClause {
	c := app.Command(name, help).Hidden()
	c.Flag("program", "longhorn-engine.").Required().StringVar(&f.volume.Program)
	c.Flag("engine", "The engine's control address.").Required().StringVar(&f.volume.Engine)
	c.Flag("engine-process", "The engine's process.").Required().StringVar(&f.engineProcess)
	c.Flag("engine-log", "Its log.").Required().StringVar(&f.volume.Log)
	c.Flag("name", "The volume's name.").Required().StringVar(&f.volume.Name)
	c.Flag("size", "Its size in bytes.").Required().Int64Var(&f.volume.Size)
	c.Flag("replica", "ADDRESS=FOLDER=PROCESS of a replica; the mark is FOLDER.stale.").Required().StringsVar(&f.replicas)
	c.Flag("process", "The replica's process.").IntVar(&f.process)
	return c
}

func (f *longhornFlags) all() (all []replicas.Replica, err error) {
	for _, text := range f.replicas {
		parts := strings.Split(text, "=")
		if len(parts) != 3 {
			return nil, fmt.Errorf("--replica=%s: want ADDRESS=FOLDER=PROCESS", text)
		}
		all = append(all, replicas.Replica{Address: parts[0], Data: parts[1], Mark: parts[1] + ".stale", Process: parts[2]})
	}
	return all, nil
}

func (f *longhornFlags) selectReplicas(ctx context.Context, dir string) error {
	all, err := f.all()
	if err != nil {
		return err
	}
	good, fallen, err := f.volume.Select(all)
	if err != nil {
		return err
	}
	for _, r := range fallen {
		if err := supervise.At(dir).Renew(ctx, r.Process, "its rebuild"); err != nil {
			return err
		}
	}
	if len(good) == 0 {
		return fmt.Errorf("volume %s has no replica with all of its data; start the lab anew", f.volume.Name)
	}
	for _, r := range good {
		fmt.Println("--replica tcp://" + r.Address)
	}
	return nil
}

func (f *longhornFlags) prepare(ctx context.Context, dir string) error {
	all, err := f.all()
	if err != nil {
		return err
	}
	return f.volume.Prepare(ctx, all[0], os.Stderr, func(ctx context.Context) error {
		return supervise.At(dir).Renew(ctx, f.engineProcess, "the return of its last replica")
	})
}

func (f *longhornFlags) rejoin(ctx context.Context) error {
	all, err := f.all()
	if err != nil {
		return err
	}
	return f.volume.Rejoin(ctx, all[0], f.process, os.Stderr)
}
