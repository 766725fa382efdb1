package proc

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"
)

func TestThisProcessIsSeen(t *testing.T) {
	before := time.Now()
	var cpu time.Duration
	var err error
	for cpu == 0 && err == nil && time.Since(before) < 2*time.Minute {
		cpu, err = CPU(os.Getpid()) // reading it takes CPU time, too
	}
	if err != nil || cpu <= 0 || cpu > time.Minute {
		t.Errorf("CPU time %v, %v", cpu, err)
	}
	started, err := Started(os.Getpid())
	if err != nil || started.After(before.Add(tick)) || before.Sub(started) > time.Minute {
		t.Errorf("started %v before the test began, %v", before.Sub(started), err)
	}
	memory, err := MemoryOf(os.Getpid())
	if err != nil || memory.RSS < memory.PSS || memory.PSS < 1024 {
		t.Errorf("memory %+v, %v", memory, err)
	}
	found, err := ByArgs(os.Args[0])
	if err != nil || !slices.ContainsFunc(found, func(p Process) bool { return p.PID == os.Getpid() }) {
		t.Errorf("this process is not among %v, %v", found, err)
	}
}

func TestAProcessThatIsNoneIsSaid(t *testing.T) {
	if _, err := CPU(-1); err == nil {
		t.Error("there is no process -1")
	}
	if _, err := GuestRAM(os.Getpid(), 3); err == nil {
		t.Error("there is no mapping of 3 KiB")
	}
}

func TestThePeakIsNoLessThanWhatThereIs(t *testing.T) {
	memory, err := MemoryOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if most := Peak(ctx, os.Getpid()); most < int64(memory.RSS)<<10 {
		t.Errorf("at its peak this process had %d bytes, it has %d KiB", most, memory.RSS)
	}
}
