package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"
)

const (
	// The interval is short compared with a test and long compared with an observation.
	interval = time.Second
	// The kernel's unit in /proc is the same on all architectures.
	tick = 0.01
)

type sample struct {
	Time time.Time `json:"time"`
	// Busy is the computing time of all CPUs since boot, in seconds.
	Busy float64 `json:"busy"`
	Used []entry `json:"used"`
}

type entry struct {
	use
	Seconds float64 `json:"seconds"`
}

func samplesFile(folder string) string { return filepath.Join(folder, "samples.json") }

func watch(ctx context.Context, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("making the folder of the profile: %w", err)
	}
	file, err := os.Create(samplesFile(folder))
	if err != nil {
		return fmt.Errorf("making the file of samples: %w", err)
	}
	defer func() { _ = file.Close() }()
	buffered := bufio.NewWriter(file)
	encoder := json.NewEncoder(buffered)
	w := watcher{uses: map[identity]named{}}
	beat := time.NewTicker(interval)
	defer beat.Stop()
	for running := true; running; {
		select {
		case <-beat.C:
		case <-ctx.Done():
			running = false
		}
		if err := w.look(encoder); err != nil {
			return err
		}
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("writing samples: %w", err)
	}
	return file.Close()
}

// watcher caches the use of each process, which is too expensive to read at every observation.
type watcher struct {
	account account
	uses    map[identity]named
}

// named is the use of a process while it keeps its name.
type named struct {
	name string
	use  use
}

func (w *watcher) look(to *json.Encoder) error {
	processes, err := w.processes()
	if err != nil {
		return err
	}
	s := sample{Time: time.Now()}
	if s.Busy, err = busy(); err != nil {
		return err
	}
	for use, seconds := range w.account.observe(processes) {
		if seconds > 0 {
			s.Used = append(s.Used, entry{use, seconds})
		}
	}
	if err := to.Encode(s); err != nil {
		return fmt.Errorf("writing a sample: %w", err)
	}
	return nil
}

func (w *watcher) processes() ([]process, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	stats := make(map[int]procfs.ProcStat, len(all))
	for _, p := range all {
		if stat, err := p.Stat(); err == nil {
			stats[p.PID] = stat
		}
	}
	uses := make(map[identity]named, len(all))
	processes := make([]process, 0, len(all))
	for _, p := range all {
		stat, there := stats[p.PID]
		if !there {
			continue
		}
		processes = append(processes, process{
			identity: identity{p.PID, stat.Starttime},
			parent:   stat.PPID,
			use:      w.use(p.PID, stats, uses),
			own:      float64(stat.UTime+stat.STime) * tick,
			children: float64(stat.CUTime+stat.CSTime) * tick,
		})
	}
	w.uses = uses
	return processes, nil
}

// use returns the use of a process, and stores it and its ancestors' in known.
func (w *watcher) use(pid int, stats map[int]procfs.ProcStat, known map[identity]named) use {
	stat, there := stats[pid]
	if !there {
		return use{}
	}
	id := identity{pid, stat.Starttime}
	if n, ok := known[id]; ok {
		return n.use
	}
	if n, ok := w.uses[id]; ok && n.name == stat.Comm {
		known[id] = n
		return n.use
	}
	parent := w.use(stat.PPID, stats, known)
	p, err := procfs.NewProc(pid)
	if err != nil {
		return parent
	}
	args, _ := p.CmdLine() // empty for a process that has ended
	environment, _ := p.Environ()
	folder, _ := p.Cwd()
	known[id] = named{stat.Comm, useOf(program{pid, args, environment, folder}, parent)}
	return known[id].use
}

func busy() (float64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, fmt.Errorf("opening /proc: %w", err)
	}
	stat, err := fs.Stat()
	if err != nil {
		return 0, fmt.Errorf("reading how busy the CPUs were: %w", err)
	}
	t := stat.CPUTotal
	return t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ, nil
}
