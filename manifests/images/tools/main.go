// Command tools takes pgbench, sysbench and fio, with all that they need, out of the packages of a
// Debian system, for the image loadgen-tools. The system may be a folder that tools/sysroot filled.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/alecthomas/kingpin/v2"
)

func main() {
	app := kingpin.New("tools", "Takes pgbench, sysbench and fio out of a Debian system's packages, for the image loadgen-tools.\n\n"+
		"Examples:\n  tools --out=build/linux/amd64/loadgen-tools\n  tools --root=/tmp/debian-arm64 --arch=arm64 --out=build/linux/arm64/loadgen-tools")
	app.HelpFlag.Short('h')
	root := app.Flag("root", "Root folder of the Debian system they are taken from.").Default("/").ExistingDir()
	arch := app.Flag("arch", "Its architecture, as Go names it.").Default(runtime.GOARCH).String()
	out := app.Flag("out", "Folder that is written.").Required().String()
	if _, err := app.Parse(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "tools: %v; try tools --help\n", err)
		os.Exit(2)
	}
	if err := run(*root, *arch, *out); err != nil {
		fmt.Fprintf(os.Stderr, "tools: %v\n", err)
		os.Exit(1)
	}
}

func run(root, arch, out string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	c, err := take(root, arch)
	if err != nil {
		return err
	}
	if err := c.Write(out); err != nil {
		return err
	}
	fmt.Printf("%s: of %d packages\n", out, len(c.Packages))
	return nil
}
