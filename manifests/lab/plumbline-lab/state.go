package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/plumbline/plumbline/manifests/lab/config"
	"github.com/plumbline/plumbline/manifests/lab/damage"
	"github.com/plumbline/plumbline/manifests/lab/sandbox"
	"github.com/plumbline/plumbline/manifests/lab/supervise"
)

// saved is what a later `status` must know of how the lab was started.
type saved struct {
	Classes   string `json:"classes"`
	Databases string `json:"databases"`
	PortBase  int    `json:"port_base"`
	Repo      string `json:"repo"`
	// Interval is in nanoseconds.
	Interval time.Duration `json:"interval"`
}

func savedPath(dir string) string { return filepath.Join(dir, "options.json") }

func saveOptions(dir string, o options) error {
	repo, err := filepath.Abs(o.repo)
	if err != nil {
		return err
	}
	text, err := json.Marshal(saved{o.classes, o.databases, o.portBase, repo, o.interval})
	if err != nil {
		return err
	}
	return os.WriteFile(savedPath(dir), text, 0o644)
}

// running returns the lab that was started in dir.
func running(o options) (*config.Lab, error) {
	if !sandbox.Exists(o.dir) {
		return nil, fmt.Errorf("no lab in %s; start one with `make lab-up` or `make demo`", o.dir)
	}
	text, err := os.ReadFile(savedPath(o.dir))
	if err != nil {
		return nil, fmt.Errorf("the lab in %s did not start (%w); remove it with `make lab-down`", o.dir, err)
	}
	var s saved
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", savedPath(o.dir), err)
	}
	if _, err := os.Stat(s.Repo); err != nil {
		return nil, fmt.Errorf("the checkout that the lab in %s was started from is gone (%w); the lab runs on, end it with `make lab-down`", o.dir, err)
	}
	o.classes, o.databases, o.portBase, o.repo, o.interval = s.Classes, s.Databases, s.PortBase, s.Repo, s.Interval
	return plan(o)
}

// removeLab ends the lab, in order if its supervisor still answers, and restores the machine.
func removeLab(dir string) error {
	dir = filepath.Clean(dir)
	if !sandbox.Exists(dir) {
		fmt.Printf("no lab in %s; nothing to do\n", dir)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	// What is stopped or held up does not end in order.
	if what, err := damage.Heal(ctx, dir); err != nil {
		fmt.Println(err)
	} else if what != "" {
		fmt.Printf("healed: break %s\n", what)
	}
	// The supervisor kills what does not end in its time, as on a busy machine.
	release, err := sandbox.Hold(dir)
	if err != nil {
		return err
	}
	if err := supervise.At(dir).StopAll(ctx); err == nil {
		awaitEnd(ctx, dir)
	}
	release()
	if err := sandbox.Remove(dir); err != nil {
		return err
	}
	fmt.Println("the lab is gone")
	return nil
}

// awaitEnd waits for the lab's processes to end by themselves, until ctx does.
func awaitEnd(ctx context.Context, dir string) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if pids, err := sandbox.Processes(dir); err != nil || len(pids) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
