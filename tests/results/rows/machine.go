package rows

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Machine is what figures depend on.
type Machine struct {
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	// Memory is in GiB, rounded.
	Memory int `json:"memory_gib"`
}

// ThisMachine reads them from procfs.
func ThisMachine(procfs string) (Machine, error) {
	m := Machine{Cores: runtime.NumCPU()}
	kernel, err := os.ReadFile(filepath.Join(procfs, "sys/kernel/osrelease"))
	if err != nil {
		return m, err
	}
	m.Kernel = strings.TrimSpace(string(kernel))
	// Not every architecture names its model.
	if m.CPU, err = field(filepath.Join(procfs, "cpuinfo"), "model name"); err != nil {
		m.CPU = runtime.GOARCH
	}
	total, err := field(filepath.Join(procfs, "meminfo"), "MemTotal")
	if err != nil {
		return m, err
	}
	kib, err := strconv.Atoi(strings.TrimSuffix(total, " kB"))
	if err != nil {
		return m, fmt.Errorf("%s/meminfo: MemTotal: %w", procfs, err)
	}
	m.Memory = (kib + 1<<19) >> 20
	return m, nil
}

// field returns the value of the first line "name: value".
func field(path, name string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("%s has no %s", path, name)
}

func loadAverage(procfs string) (string, error) {
	text, err := os.ReadFile(filepath.Join(procfs, "loadavg"))
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 3 {
		return "", fmt.Errorf("%s/loadavg: %q", procfs, text)
	}
	return strings.Join(fields[:3], " "), nil
}
