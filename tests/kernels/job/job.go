// Package job is what the runner of tests/kernels has a guest's first process do.
package job

// File is where it lies in the guest's initramfs, as JSON.
const File = "/job.json"

// Files in the guest's /run/host: Booted and Ended have the seconds since its kernel's start, written before and after
// the command, and Exit has the command's exit code.
const (
	Booted = "booted"
	Ended  = "ended"
	Exit   = "exit"
)

// Job is what to do.
type Job struct {
	// Modules are files in the initramfs, in the order to load them.
	Modules []string `json:"modules"`
	// Kernel is the kernel's folder of modules, in the machine's root.
	Kernel string `json:"kernel"`
	// Shares are further folders of the machine, to mount read-only.
	Shares []Share `json:"shares"`
	// Command is what to run in the machine's root, in the folder Dir, with Env beside the usual environment.
	Command []string `json:"command"`
	Dir     string   `json:"dir"`
	Env     []string `json:"env"`
	// Seconds is how long the command may take. One that takes longer is described on the console.
	Seconds int `json:"seconds"`
}

// Share is a folder of the machine that the guest's root does not have, and where the guest has it.
type Share struct {
	Tag  string `json:"tag"`
	From string `json:"-"`
	To   string `json:"to"`
}
