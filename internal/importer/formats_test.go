package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/target"
	"drydock.dev/drydock/test/shipped"
)

const mib = 1 << 20

func someDisk(size int, seed uint64) []byte {
	random := rand.New(rand.NewPCG(seed, 1))
	bytesOf := rand.NewChaCha8([32]byte{byte(seed)})
	disk := make([]byte, size)
	for at := 0; at < size; {
		length := min(1+random.IntN(600<<10), size-at)
		switch random.IntN(4) {
		case 0: // incompressible
			_, _ = bytesOf.Read(disk[at : at+length])
		case 1: // compressible
			copy(disk[at:at+length], bytes.Repeat([]byte("all work and no play "), length/21))
		}
		at += length
	}
	return disk
}

func image(t *testing.T, disk []byte, format string, options ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	raw, made := filepath.Join(dir, "raw"), filepath.Join(dir, "image")
	if err := os.WriteFile(raw, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, shipped.Program(t, "qemu-img"), append(append([]string{"convert", "-t", "unsafe", "-f", "raw", "-O", format}, options...), raw, made)...)
	return read(t, made)
}

func compressed(t *testing.T, content []byte, program ...string) []byte {
	t.Helper()
	name := filepath.Join(t.TempDir(), "content")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return command(t, program[0], append(program[1:], "-c", name)...)
}

func command(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, &said)
	}
	return out
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The device has old data.
func (p *pod) device(size int) {
	p.t.Helper()
	if err := os.WriteFile(p.job.Device, bytes.Repeat([]byte("old"), size/3+1)[:size], 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func TestEveryFormatArrives(t *testing.T) {
	disk := someDisk(6*mib, 7)
	qcow2 := image(t, disk, "qcow2")
	contents := map[string][]byte{
		"raw":                         disk,
		"qcow2":                       qcow2,
		"qcow2, version 2":            image(t, disk, "qcow2", "-o", "compat=0.10"),
		"qcow2, compressed by zlib":   image(t, disk, "qcow2", "-c"),
		"qcow2, compressed by zstd":   image(t, disk, "qcow2", "-c", "-o", "compression_type=zstd"),
		"qcow2 of small clusters":     image(t, disk, "qcow2", "-o", "cluster_size=512"),
		"qcow2 of large clusters":     image(t, disk, "qcow2", "-c", "-o", "cluster_size=2M"),
		"qcow2 of subclusters":        image(t, disk, "qcow2", "-o", "extended_l2=on"),
		"qcow2 with all tables first": image(t, disk, "qcow2", "-o", "preallocation=metadata"),
		"raw.gz":                      compressed(t, disk, "gzip", "-1"),
		"raw.xz":                      compressed(t, disk, "xz", "-0"),
		"raw.zst":                     compressed(t, disk, "zstd", "-q"),
		"qcow2.gz":                    compressed(t, qcow2, "gzip", "-1"),
		"qcow2.xz":                    compressed(t, qcow2, "xz", "-0"),
		"qcow2.zst":                   compressed(t, qcow2, "zstd", "-q"),
		"vmdk":                        image(t, disk, "vmdk"),
		"vmdk for streams":            image(t, disk, "vmdk", "-o", "subformat=streamOptimized"),
		"vdi":                         image(t, disk, "vdi"),
		"vhdx":                        image(t, disk, "vhdx"),
		"vhd":                         image(t, disk, "vpc", "-o", "force_size=on"),
	}
	for name, content := range contents {
		for _, block := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s to block=%t", name, block), func(t *testing.T) {
				t.Parallel()
				const grown = 8 * mib
				p := newPod(t, transfer.Task{URL: serve(t, content, "v1").URL, Size: grown, Block: block})
				if block {
					p.device(grown)
				}
				result := p.run()
				if result.Reason != transfer.ReasonCompleted || result.VirtualSize != grown {
					t.Fatalf("got %+v", result)
				}
				got := p.disk()
				if !bytes.Equal(got[:len(disk)], disk) || len(bytes.Trim(got[len(disk):], "\x00")) > 0 || len(got) != grown {
					t.Errorf("the disk is another one")
				}
				if left := p.left(); !block && (len(left) != 1 || left[0] != "disk.img") {
					t.Errorf("in the claim are %q", left)
				}
			})
		}
	}
}

func TestABlankDiskIsZero(t *testing.T) {
	for _, block := range []bool{false, true} {
		p := newPod(t, transfer.Task{Kind: transfer.KindBlank, Size: 4 * mib, Block: block})
		if block {
			p.device(4 * mib)
		}
		if result := p.run(); result.Reason != transfer.ReasonCompleted || !bytes.Equal(p.disk(), make([]byte, 4*mib)) {
			t.Errorf("block=%t: got %+v", block, result)
		}
	}
}

func TestAnArchiveIsUnpacked(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hello"), []byte("world"), 0o600); err != nil {
		t.Fatal(err)
	}
	content := command(t, "tar", "-C", dir, "-cz", ".")
	p := newPod(t, transfer.Task{URL: serve(t, content, "").URL, Size: mib, Archive: true})
	if result := p.run(); result.Reason != transfer.ReasonCompleted || result.VirtualSize != 5 {
		t.Errorf("got %+v", result)
	}
	if got := read(t, filepath.Join(p.job.Dir, "hello")); string(got) != "world" {
		t.Errorf("got %q", got)
	}
}

// TestSpaceIsLookedForBeforeTheDownload offers an image with more data than the machine has space: it must not be
// fetched.
func TestSpaceIsLookedForBeforeTheDownload(t *testing.T) {
	p := newPod(t, transfer.Task{})
	free, err := target.Free(p.job.Dir)
	if err != nil {
		t.Fatal(err)
	}
	size := (free/(1<<30) + 50) << 30
	name := filepath.Join(t.TempDir(), "image")
	command(t, shipped.Program(t, "qemu-img"), "create", "-q", "-f", "qcow2", "-o", "preallocation=metadata,cluster_size=2M", name, fmt.Sprint(size))
	s := serveFile(t, name)
	p.task.URL, p.task.Size = s.URL, size
	result := p.run()
	if result.Reason != transfer.ReasonNoSpace || !strings.Contains(result.Message, "GiB free: request a larger claim") || len(p.left()) > 0 {
		t.Errorf("got %+v; in the claim are %q", result, p.left())
	}
	if sent := s.sent.Load(); sent > 64*mib {
		t.Errorf("%d MiB were fetched", sent>>20)
	}
}

// TestProgressIsToldWhileTheWorkerWorks asks a worker for its progress while it waits for its server.
func TestProgressIsToldWhileTheWorkerWorks(t *testing.T) {
	content := someDisk(16*mib, 1)
	s := serve(t, content, "v1")
	s.slow = int64(len(content)) / 2
	p := newPod(t, transfer.Task{URL: s.URL, Size: 16 * mib})
	// An address of the test's own, so that no other process takes the port before the worker does.
	free, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+os.Getpid()>>16%254, os.Getpid()>>8&255, 1+os.Getpid()%254))
	if err != nil {
		t.Fatal(err)
	}
	p.progress = free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	worker := p.command()
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	var last transfer.Progress
	for deadline, tick := time.Now().Add(patience), time.Tick(5*time.Millisecond); last.Done < s.slow-mib && time.Now().Before(deadline); <-tick {
		response, err := http.Get("http://" + p.progress + transfer.ProgressPath)
		if err != nil {
			continue // it does not listen yet
		}
		var now transfer.Progress
		if err := errors.Join(json.NewDecoder(response.Body).Decode(&now), response.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if now.Done < last.Done || now.Total != 0 && now.Total != int64(len(content)) {
			t.Fatalf("after %+v came %+v", last, now)
		}
		last = now
	}
	if last.Done < s.slow-mib || last.Step != "copying" {
		t.Errorf("at last: %+v", last)
	}
	close(s.release)
	if err := worker.Wait(); err != nil {
		t.Error(err)
	}
}
