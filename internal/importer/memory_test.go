package importer

import (
	"bytes"
	"context"
	"testing"

	"drydock.dev/drydock/bench/proc"
	"drydock.dev/drydock/internal/contracts/transfer"
)

func TestMemoryIsBounded(t *testing.T) {
	const size = 72 * mib
	disk := bytes.Repeat(someDisk(36*mib, 9), 2)
	for name, content := range map[string][]byte{
		"zstd that looks far back": compressed(t, disk, "zstd", "-q", "-1", "--long=26"),
		"xz that looks far back":   compressed(t, disk, "xz", "-0", "--lzma2=preset=0,dict=64MiB"),
		"qcow2 of large clusters":  image(t, disk, "qcow2", "-c", "-o", "cluster_size=2M"),
		"zst of qcow2":             compressed(t, image(t, disk, "qcow2", "-o", "cluster_size=4096"), "zstd", "-q", "-1", "--long=26"),
		"vmdk":                     image(t, disk, "vmdk"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t, transfer.Task{URL: serve(t, content, "v1").URL, Size: size})
			worker := p.command()
			if err := worker.Start(); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			most := make(chan int64)
			go func() { most <- proc.Peak(ctx, worker.Process.Pid) }()
			err := worker.Wait()
			stop()
			memory := <-most
			if err != nil {
				t.Fatalf("%v: %+v", err, p.result())
			}
			t.Logf("%d MiB at the peak", memory>>20)
			if memory > 128<<20 {
				t.Errorf("it took %d MiB", memory>>20)
			}
			if !bytes.Equal(p.disk(), disk) {
				t.Error("the disk is another one")
			}
		})
	}
}
