package bootprobe

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Outcome is the result of a run.
type Outcome struct {
	OK     bool
	Stage  string // the last that the guest reached, empty for none
	Reason string // where and how it stopped, empty if OK
	// Starved means that QEMU or its guest missed a deadline while QEMU used a CPU for less than half of that time.
	Starved bool
	Took    time.Duration
}

type observation struct {
	start, deadline time.Duration
	// err is why the guest never ran, or the monitor's failure.
	err  error
	ran  bool
	late bool
	// state is QEMU's last known run state.
	state   string
	exited  bool
	status  syscall.WaitStatus
	words   string
	letters []byte
	took    time.Duration
	cpu     time.Duration
}

type stage struct {
	letter byte
	name   string
}

// The guest's stages in order; guest/bios.S writes the letters.
var (
	fromProtected = []stage{
		{'p', "protected mode"},
		{'l', "long mode"},
		{'m', "memory-mapped I/O"},
		{'t', "the timer interrupt"},
		{'i', "the local APIC's interrupt"},
		{'a', "the start of the second CPU"},
		{'c', "long mode on the second CPU"},
	}
	stagesOf = map[Firmware][]stage{
		BIOS: append([]stage{{'r', "real mode"}}, fromProtected...),
		UEFI: append([]stage{{'u', "the UEFI application"}}, fromProtected...),
	}
)

// guest/bios.S writes these values to isa-debug-exit. QEMU's exit code is twice the value plus one.
const (
	exitDone      = 0x2a
	exitDisk      = 0x30
	exitPort      = 0x31
	exitLongMode  = 0x32
	exitMMIO      = 0x33
	exitException = 0x40

	exceptions = 32
)

var faults = map[int]string{
	exitDisk:     "the BIOS could not read its disk",
	exitPort:     "port I/O gave a wrong answer",
	exitLongMode: "the CPU has no long mode",
	exitMMIO:     "memory-mapped I/O gave a wrong answer",
}

func judge(seen observation, firmware Firmware) Outcome {
	stages := stagesOf[firmware]
	reached := 0
	for _, letter := range seen.letters {
		if reached < len(stages) && letter == stages[reached].letter {
			reached++
		}
	}
	outcome := Outcome{Took: seen.took}
	if reached > 0 {
		outcome.Stage = stages[reached-1].name
	}
	if reached == len(stages) && seen.exited && seen.status.Exited() && seen.status.ExitStatus() == exitDone<<1|1 {
		outcome.OK = true
		return outcome
	}
	expired := errors.Is(seen.err, context.DeadlineExceeded)
	if !seen.ran {
		outcome.Starved = expired && seen.cpu < seen.start/2
		outcome.Reason = "QEMU does not start: " + describeEnd(seen)
		return outcome
	}
	outcome.Starved = (seen.late || expired) && seen.cpu < seen.deadline/2
	outcome.Reason = fmt.Sprintf("the guest stopped %s: %s", describeStage(stages, reached, firmware), describeEnd(seen))
	return outcome
}

func describeStage(stages []stage, reached int, firmware Firmware) string {
	switch reached {
	case 0:
		return fmt.Sprintf("in the firmware (%s), before its own first instruction", firmware)
	case len(stages):
		return "after its last stage"
	}
	return fmt.Sprintf("after %s, before %s", stages[reached-1].name, stages[reached].name)
}

func describeEnd(seen observation) string {
	var said string
	switch {
	case seen.exited && seen.status.Signaled():
		said = fmt.Sprintf("QEMU was ended by signal %d (%s)", seen.status.Signal(), seen.status.Signal())
	case seen.exited:
		said = describeExitCode(seen.status.ExitStatus(), seen.ran)
	case !makesProgress(seen.state):
		said = "QEMU's run state is " + seen.state
	case seen.late, errors.Is(seen.err, context.DeadlineExceeded) && seen.ran:
		said = fmt.Sprintf("it did not finish within %v", seen.deadline)
	case errors.Is(seen.err, context.DeadlineExceeded):
		said = fmt.Sprintf("QEMU did not answer within %v", seen.start)
	case seen.err != nil:
		said = seen.err.Error()
	default:
		said = "QEMU's monitor was closed"
	}
	if seen.words != "" {
		said += ": " + seen.words
	}
	return said
}

func describeExitCode(code int, ran bool) string {
	value := code >> 1
	switch {
	case code == 0 && ran:
		return "it was reset, as by a triple fault"
	case code&1 == 1 && value >= exitException && value < exitException+exceptions:
		return fmt.Sprintf("the CPU raised exception %d", value-exitException)
	case code&1 == 1 && faults[value] != "":
		return faults[value]
	}
	return fmt.Sprintf("QEMU ended with exit code %d", code)
}

// The state is "" until QEMU is queried.
func makesProgress(state string) bool { return state == "" || state == "running" }
