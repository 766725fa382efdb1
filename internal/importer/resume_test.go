package importer

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"drydock.dev/drydock/internal/transfer"
)

// stopHalfWay runs a worker until the server has sent half of the content, and ends it
// by a signal.
func stopHalfWay(t *testing.T, p *pod, s *server, size int, signal syscall.Signal) {
	t.Helper()
	s.mu.Lock()
	s.slow = int64(size) / 2
	s.mu.Unlock()
	cmd := p.command()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); s.sent.Load() < int64(size)/2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the worker does not get to the half")
		}
	}
	p.settled()
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	s.mu.Lock()
	s.slow = 0
	s.mu.Unlock()
}

// settled waits until the journal is not written any more: the worker waits for the
// server.
func (p *pod) settled() {
	p.t.Helper()
	name := filepath.Join(p.job.Dir, ".disk.img.journal")
	if p.task.Block {
		name = filepath.Join(p.job.Work, "journal")
	}
	var last []byte
	same := 0
	for deadline := time.Now().Add(20 * time.Second); same < 20; time.Sleep(10 * time.Millisecond) {
		now, err := os.ReadFile(name)
		if time.Now().After(deadline) {
			p.t.Fatalf("no journal is kept: %v", err)
		}
		if err == nil && bytes.Equal(now, last) {
			same++
		} else {
			same, last = 0, now
		}
	}
}

func TestAKilledWorkersSuccessorGoesOn(t *testing.T) {
	disk := someDisk(48*mib, 3)
	for name, content := range map[string][]byte{"raw": disk, "qcow2": image(t, disk, "qcow2"), "compressed qcow2": image(t, disk, "qcow2", "-c")} {
		for _, block := range []bool{false, true} {
			for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
				t.Run(fmt.Sprintf("%s, block=%t, %s", name, block, signal), func(t *testing.T) {
					s := serve(t, content, "v1")
					p := newPod(t, transfer.Task{URL: s.URL, Size: 48 * mib, Block: block,
						Checksum: fmt.Sprintf("sha256:%x", sha256.Sum256(content))})
					if block {
						p.device(48 * mib)
					}
					stopHalfWay(t, p, s, len(content), signal)
					if names := p.left(); !block && len(names) != 2 {
						t.Errorf("in the claim are %q", names)
					}
					s.sent.Store(0)
					result := p.run()
					if result.Reason != transfer.ReasonCompleted || !bytes.Equal(p.disk(), disk) {
						t.Fatalf("got %+v", result)
					}
					half := int64(len(content)) / 2
					if again := s.sent.Load() - half; again > int64(len(content))/20 {
						t.Errorf("%d of %d bytes were fetched again", again, len(content))
					}
					if result.Resumed == 0 {
						t.Error("it began again")
					}
				})
			}
		}
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
			old.Config.Handler = serve(t, replaced.content, replaced.tag).Config.Handler
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
			s.Config.Handler = cutting(serve(t, content, "v1").Config.Handler, int64(len(content))/3)
			p := newPod(t, transfer.Task{URL: s.URL, Size: 24 * mib})
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
