package initiator

import (
	"errors"
	"fmt"
	"net"
)

// BlockSize is that of the disks of tgt and istgt.
const BlockSize = 512

const unitAttention = 6

// attempts is how often a command is sent while the unit only reports an event, such as a power-on.
const attempts = 4

func (s *Session) do(c Command) (data []byte, err error) {
	for range attempts {
		var t *Task
		if t, err = s.Submit(c); err != nil {
			return nil, err
		}
		data, err = t.Wait()
		var status *StatusError
		if !errors.As(err, &status) || status.key() != unitAttention {
			break
		}
	}
	return data, err
}

// cdb10 is a command of 10 bytes.
func cdb10(code byte, lba uint32, blocks int) []byte {
	b := make([]byte, 10)
	b[0] = code
	be.PutUint32(b[2:], lba)
	be.PutUint16(b[7:], uint16(blocks))
	return b
}

// Read10 is the command that reads blocks, for Submit.
func Read10(lun int, lba uint32, blocks int) Command {
	return Command{LUN: lun, CDB: cdb10(0x28, lba, blocks), Read: blocks * BlockSize}
}

// Write10 is the command that writes whole blocks, for Submit.
func Write10(lun int, lba uint32, data []byte) Command {
	return Command{LUN: lun, CDB: cdb10(0x2a, lba, len(data)/BlockSize), Write: data}
}

// Sync10 is the command that has blocks written to the disk, for Submit; all blocks from lba if blocks is 0.
func Sync10(lun int, lba uint32, blocks int) Command {
	return Command{LUN: lun, CDB: cdb10(0x35, lba, blocks)}
}

// Read reads blocks by READ(10).
func (s *Session) Read(lun int, lba uint32, blocks int) ([]byte, error) {
	data, err := s.do(Read10(lun, lba, blocks))
	if err == nil && len(data) != blocks*BlockSize {
		err = fmt.Errorf("%d bytes, not %d blocks", len(data), blocks)
	}
	return data, err
}

// Write writes whole blocks by WRITE(10).
func (s *Session) Write(lun int, lba uint32, data []byte) error {
	_, err := s.do(Write10(lun, lba, data))
	return err
}

// Sync has blocks written to the disk by SYNCHRONIZE CACHE(10); all blocks from lba if blocks is 0.
func (s *Session) Sync(lun int, lba uint32, blocks int) error {
	_, err := s.do(Sync10(lun, lba, blocks))
	return err
}

// ReadCapacity reads how many blocks a disk has, and how long they are.
func (s *Session) ReadCapacity(lun int) (blocks uint64, blockSize int, err error) {
	data, err := s.do(Command{LUN: lun, CDB: cdb10(0x25, 0, 0), Read: 8})
	if err == nil && len(data) != 8 {
		err = fmt.Errorf("%d bytes, not 8", len(data))
	}
	if err != nil {
		return 0, 0, err
	}
	return uint64(be.Uint32(data)) + 1, int(be.Uint32(data[4:])), nil
}

// TaskError is the answer to a task management request that was not done, such as 1: there is no such task.
type TaskError byte

func (e TaskError) Error() string { return fmt.Sprintf("task management response %d", byte(e)) }

// Abort requests the target to abort a command without a response (ABORT TASK). If it does, the command's result is
// ErrAborted.
func (s *Session) Abort(tag uint32) error {
	c, cmdSN := Command{}, uint32(0)
	if t := s.task(tag); t != nil {
		c, cmdSN = Command{LUN: t.command.LUN}, t.cmdSN
	}
	t, p := newTask(c)
	p.header[0], p.header[1] = opTask|immediate, final|1
	p.setLUN(c.LUN)
	p.set(20, tag)
	p.set(32, cmdSN)
	answer, err := s.request(t, p)
	if err != nil {
		return err
	}
	if answer.header[2] != 0 {
		return TaskError(answer.header[2])
	}
	s.finish(tag, Result{Err: ErrAborted})
	return nil
}

// Logout ends the session in good order. That the target ends the connection is an answer, too: istgt does it in one
// thread and answers in another one, and may be faster.
func (s *Session) Logout() error {
	t, p := newTask(Command{})
	p.header[0], p.header[1] = opLogout|immediate, final
	answer, err := s.request(t, p)
	switch {
	case errors.Is(err, net.ErrClosed):
		err = nil
	case err == nil && answer.header[2] != 0:
		err = fmt.Errorf("logout response %d", answer.header[2])
	}
	return errors.Join(err, s.Close())
}

func (s *Session) request(t *Task, p *pdu) (*pdu, error) {
	if err := s.start(t, p); err != nil {
		return nil, err
	}
	_, err := t.Wait()
	return t.answer, err
}
