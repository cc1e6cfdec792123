package server

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// WaitEventVariable is the name of the variable that holds, in each PostgreSQL process, the pointer to where the
// process keeps its wait event. PostgreSQL exports all its global variables, because extensions link to them.
const WaitEventVariable = "my_wait_event_info"

// VariableAddress returns the address of an exported variable of a process's program, which
// is the same in the process's forks. It reads the symbol table and takes milliseconds, or as
// long as the program's file system or the process's memory hangs: see untrusted.Calls.
func VariableAddress(procfs string, pid int, name string) (uint64, error) {
	dir := newProcess(procfs, pid).dir
	file, _, err := untrusted.OpenMagic(filepath.Join(dir, "exe"))
	if err != nil {
		return 0, fmt.Errorf("program file: %w", ended(err))
	}
	defer file.Close()
	program, err := readProgram(file)
	if err != nil {
		return 0, fmt.Errorf("program file: %w", err)
	}
	value, err := program.symbol(name)
	if err != nil || elf.Type(program.header.Type) == elf.ET_EXEC {
		return value, err
	}
	bias, err := loadBias(dir, program)
	return value + bias, err
}

// loadBias returns what is to be added to a position-independent program's addresses: where
// the page of its first segment was mapped.
func loadBias(dir string, program *program) (uint64, error) {
	exe, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil {
		return 0, ended(err)
	}
	for _, p := range program.segments {
		if elf.ProgType(p.Type) != elf.PT_LOAD {
			continue
		}
		const page = 4096
		start, err := mapped(filepath.Join(dir, "maps"), exe, p.Off&^(page-1))
		return start - p.Vaddr&^(page-1), err
	}
	return 0, errors.New("program file has nothing to load")
}

// mapped returns where a file is mapped from the given offset on, by a table such as
// /proc/PID/maps, see proc(5).
func mapped(table, file string, offset uint64) (uint64, error) {
	var found uint64
	problem := fmt.Errorf("%s does not show %s", table, untrusted.Path(file))
	err := untrusted.Lines(table, maxMaps, func(line string) bool {
		const at, path = 2, 5
		fields := strings.SplitN(line, " ", path+1)
		if len(fields) <= path || strings.TrimLeft(fields[path], " ") != file {
			return true
		}
		if n, err := strconv.ParseUint(fields[at], 16, 64); err != nil || n != offset {
			return true
		}
		from, _, _ := strings.Cut(fields[0], "-")
		found, problem = strconv.ParseUint(from, 16, 64)
		return false
	})
	if err != nil {
		return 0, ended(err)
	}
	return found, problem
}
