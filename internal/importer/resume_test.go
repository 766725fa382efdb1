package importer

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
)

func stopHalfWay(t *testing.T, p *pod, s *server, size int, signal syscall.Signal) {
	t.Helper()
	s.mu.Lock()
	s.slow = int64(size) / 2
	s.mu.Unlock()
	cmd := p.command()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline, tick := time.Now().Add(patience), time.Tick(time.Millisecond); s.sent.Load() < int64(size)/2; <-tick {
		if time.Now().After(deadline) {
			t.Fatal("the worker does not get to the half")
		}
	}
	p.reaches(int64(size)/2 - again(int64(size)))
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	s.mu.Lock()
	s.slow = 0
	s.mu.Unlock()
}

// again is the amount of content that may be fetched again: 5 %, and one read-ahead. In the benchmark's larger content
// the 5 % are all.
func again(size int64) int64 { return size/20 + 1<<20 }

func (p *pod) reaches(place int64) {
	p.t.Helper()
	for deadline, tick := time.Now().Add(patience), time.Tick(time.Millisecond); p.place() < place; <-tick {
		if time.Now().After(deadline) {
			p.t.Fatalf("the journal got to %d, and not to %d", p.place(), place)
		}
	}
}

func (p *pod) place() int64 {
	p.t.Helper()
	name := filepath.Join(p.job.Dir, ".disk.img.journal")
	if p.task.Block {
		name = filepath.Join(p.job.Work, "journal")
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	var journal struct{ Place int64 }
	if err := json.Unmarshal(data, &journal); err != nil {
		p.t.Fatal(err)
	}
	return journal.Place
}

func TestAKilledWorkersSuccessorGoesOn(t *testing.T) {
	disk := someDisk(32*mib, 3)
	qcow2, packed := image(t, disk, "qcow2"), image(t, disk, "qcow2", "-c")
	for name, test := range map[string]struct {
		content []byte
		block   bool
		signal  syscall.Signal
	}{
		"raw":                          {disk, false, syscall.SIGKILL},
		"raw to a device":              {disk, true, syscall.SIGKILL},
		"qcow2":                        {qcow2, false, syscall.SIGKILL},
		"qcow2, asked to stop":         {qcow2, false, syscall.SIGTERM},
		"compressed qcow2":             {packed, false, syscall.SIGKILL},
		"compressed qcow2 to a device": {packed, true, syscall.SIGKILL},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, test.content, "v1")
			size := int64(len(test.content))
			p := newPod(t, transfer.Task{URL: s.URL, Size: int64(len(disk)), Block: test.block,
				Checksum: fmt.Sprintf("sha256:%x", sha256.Sum256(test.content))})
			if test.block {
				p.device(len(disk))
			}
			stopHalfWay(t, p, s, len(test.content), test.signal)
			if names := p.left(); slices.Contains(names, "disk.img") {
				t.Errorf("half a disk looks whole: in the claim are %q", names)
			}
			s.sent.Store(0)
			place := p.place()
			result := p.run()
			if result.Reason != transfer.ReasonCompleted || !bytes.Equal(p.disk(), disk) {
				t.Fatalf("got %+v", result)
			}
			// The journal is near the half, for which stopHalfWay has waited.
			if more := s.sent.Load() - (size - place); more > again(size) || result.Resumed == 0 {
				t.Errorf("%d of %d bytes were fetched again", more, size)
			}
		})
	}
}

// A worker's pod is deleted after it has made the disk, before anybody has read its result: the next worker must start
// over.
func TestADiskThatNobodyHasHeardOfMakesRoom(t *testing.T) {
	disk := someDisk(24*mib, 1)
	s := serve(t, disk, "v1")
	p := newPod(t, transfer.Task{URL: s.URL, Size: int64(len(disk))})
	if result := p.run(); result.Reason != transfer.ReasonCompleted {
		t.Fatalf("got %+v", result)
	}
	s.sent.Store(0)
	stopHalfWay(t, p, s, len(disk), syscall.SIGKILL)
	if names := p.left(); slices.Contains(names, "disk.img") {
		t.Errorf("the claim must have room for two disks: in it are %q", names)
	}
	if result := p.run(); result.Reason != transfer.ReasonCompleted || !bytes.Equal(p.disk(), disk) {
		t.Errorf("got %+v", result)
	}
}

func TestOtherContentBeginsAgain(t *testing.T) {
	first, second := someDisk(24*mib, 1), someDisk(24*mib, 2)
	old := serve(t, first, "v1")
	p := newPod(t, transfer.Task{URL: old.URL, Size: 24 * mib})
	stopHalfWay(t, p, old, len(first), syscall.SIGKILL)
	for name, replaced := range map[string]struct {
		content []byte
		tag     string
	}{
		"another version":  {second, "v2"},
		"without versions": {second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			again := newPod(t, p.task)
			if err := os.CopyFS(again.job.Dir, os.DirFS(p.job.Dir)); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
			old.become(serve(t, replaced.content, replaced.tag))
			result := again.run()
			if result.Reason != transfer.ReasonCompleted || result.Resumed != 0 || !bytes.Equal(again.disk(), replaced.content) {
				t.Errorf("got %+v", result)
			}
		})
	}
}

func TestACutConnectionIsTakenUpInTheWorker(t *testing.T) {
	disk := someDisk(24*mib, 5)
	s := serve(t, disk, "v1")
	for name, content := range map[string][]byte{"raw": disk, "gz": compressed(t, disk, "gzip", "-1"), "qcow2": image(t, disk, "qcow2")} {
		t.Run(name, func(t *testing.T) {
			s.become(cutting(serve(t, content, "v1"), int64(len(content))/3))
			p := newPod(t, transfer.Task{URL: s.URL, Size: 24 * mib, StallSeconds: 60})
			result := p.run()
			if result.Reason != transfer.ReasonCompleted || !bytes.Equal(p.disk(), disk) {
				t.Fatalf("got %+v", result)
			}
			if result.Read > int64(len(content))+mib {
				t.Errorf("%d bytes were read of %d", result.Read, len(content))
			}
		})
	}
}
