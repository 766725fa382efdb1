// Package memorydump sends QEMU the commands of a dump of the guest's memory, and reads its progress.
//
// QEMU 7.2 and later: dump-guest-memory with detach stops the CPUs if they run, writes the guest's memory as ELF to a
// descriptor in a thread of its own, lets the CPUs continue and sends DUMP_COMPLETED. Meanwhile it refuses stop, cont
// and migrations. It can't be interrupted. It keeps the last dump's status, not its file. The package decides nothing.
package memorydump

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"unicode"

	"drydock.dev/drydock/internal/qemu/qmp"
)

// CompletedEvent is QEMU's event at the end of a dump.
const CompletedEvent = "DUMP_COMPLETED"

// descriptor is the name by which QEMU knows the file until it begins.
const descriptor = "memory-dump"

// longestError bounds QEMU's error, which is shown to users.
const longestError = 256

// Query is the part of QEMU's monitor that Observe needs.
type Query interface {
	Execute(ctx context.Context, command string, args, result any) error
}

// Monitor is the used part of *qmp.Client.
type Monitor interface {
	Query
	ExecuteWithFile(ctx context.Context, command string, args any, file *os.File, result any) error
}

// Properties are a command's arguments.
type Properties = map[string]any

// State is the state of QEMU's last dump.
type State struct {
	Status string `json:"status"`
	// Completed and Total are in bytes.
	Completed int64 `json:"completed"`
	Total     int64 `json:"total"`
}

// Observe returns the state of the last dump.
func Observe(ctx context.Context, m Query) (s State, err error) {
	err = m.Execute(ctx, "query-dump", nil, &s)
	return s, err
}

// Start gives QEMU the file, and makes it begin. QEMU has a descriptor of its own afterwards. If the error is not Refused,
// QEMU may begin later: it answers when it has stopped the guest and flushed the disks.
func Start(ctx context.Context, m Monitor, file *os.File) error {
	if err := m.ExecuteWithFile(ctx, "getfd", Properties{"fdname": descriptor}, file, nil); err != nil {
		return err
	}
	err := m.Execute(ctx, "dump-guest-memory", Properties{"paging": false, "protocol": "fd:" + descriptor, "detach": true}, nil)
	if err == nil {
		return nil
	}
	if !Refused(err) {
		return err // QEMU may still need the descriptor
	}
	// QEMU may have taken or closed the descriptor already, and refuses this, too.
	if late := m.Execute(ctx, "closefd", Properties{"fdname": descriptor}, nil); late != nil && !Refused(late) {
		return errors.Join(err, late)
	}
	return err
}

// Refused reports whether QEMU has answered with an error. After any other one, a command may still be executed.
func Refused(err error) bool {
	refusal := (*qmp.Error)(nil)
	return errors.As(err, &refusal)
}

// Error returns the error in a CompletedEvent, "" for none, as one short line.
func Error(e qmp.Event) string {
	var data struct {
		Error string `json:"error"`
	}
	if len(e.Data) == 0 || json.Unmarshal(e.Data, &data) != nil {
		return ""
	}
	line := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, data.Error)
	return strings.ToValidUTF8(line[:min(len(line), longestError)], "")
}
