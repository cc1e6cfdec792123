// Command churn shows whether the agent stays as small as it is: it runs the agent beside a
// PostgreSQL server whose connections come and go, and prints at each interval what the agent
// takes, what it lost, and whether it counted every statement that was made.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

type options struct {
	agent              string
	agentFlags         []string
	initdb, postgres   string
	duration, interval time.Duration
	connects           float64
	connections        int
	statements         float64
}

func main() {
	app := kingpin.New("churn", "Samples the agent's memory, map fill, open files and losses under connection churn.\n\n"+
		"It starts a PostgreSQL server of its own and needs root. Example:\n  churn --duration=1h --agent=build/bin/plumbline-agent")
	app.HelpFlag.Short('h')
	var o options
	app.Flag("agent", "The agent's program file.").Default("build/bin/plumbline-agent").StringVar(&o.agent)
	app.Flag("agent-flag", "Flag for the agent; repeatable.").StringsVar(&o.agentFlags)
	app.Flag("initdb", "PostgreSQL's initdb; from PATH or Debian's folders if empty.").StringVar(&o.initdb)
	app.Flag("postgres", "PostgreSQL's server program; likewise.").StringVar(&o.postgres)
	app.Flag("duration", "How long to go on.").Default("1h").DurationVar(&o.duration)
	app.Flag("interval", "Time between samples.").Default("1m").DurationVar(&o.interval)
	app.Flag("connects", "Short connections a second, each for three statements.").Default("40").Float64Var(&o.connects)
	app.Flag("connections", "Connections that stay.").Default("10").IntVar(&o.connections)
	app.Flag("statements", "Statements a second on those, altogether.").Default("200").Float64Var(&o.statements)
	kingpin.MustParse(app.Parse(os.Args[1:]))

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	samples, err := run(ctx, o, os.Stdout)
	if err == nil {
		err = verdict(samples)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "churn:", err)
		stop()
		os.Exit(1)
	}
}
