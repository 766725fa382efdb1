package clone

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

func sparse(t *testing.T, size int64, data map[int64]int) *os.File {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for at, n := range data {
		p := make([]byte, n)
		rand.New(rand.NewSource(at)).Read(p)
		if _, err := file.WriteAt(p, at); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

func sumOf(t *testing.T, r io.Reader) (string, int64) {
	t.Helper()
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil)), n
}

// The received disk must equal the sent one, and a hole of gigabytes take only some hundred kilobytes.
func TestTheStreamIsTheDisk(t *testing.T) {
	const mib = 1 << 20
	for what, test := range map[string]struct {
		size int64
		data map[int64]int
		most int
	}{
		"one sector":                     {512, map[int64]int{0: 512}, 1024},
		"data everywhere":                {3 * mib, map[int64]int{0: 3 * mib}, 4 * mib},
		"a hole of all sizes":            {200*mib + 5*mib + 4096, nil, 64 << 10},
		"data after a hole":              {130 * mib, map[int64]int{129*mib + 4096: 8192}, 64 << 10},
		"data around holes":              {150 * mib, map[int64]int{0: 4096, 70 * mib: mib + 4096, 140 * mib: 10 * mib}, 12 * mib},
		"a quarter gigabyte, no content": {256 * mib, nil, 64 << 10},
	} {
		t.Run(what, func(t *testing.T) {
			disk := sparse(t, test.size, test.data)
			var sent bytes.Buffer
			s := &stream{disk: disk, size: test.size, meter: job.NewMeter()}
			sum, err := s.copyTo(t.Context(), &sent)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := sumOf(t, bytes.NewReader(sent.Bytes())); got != sum {
				t.Error("the sum is not that of what was sent")
			}
			if sent.Len() > test.most {
				t.Errorf("%d bytes were sent, at most %d should be", sent.Len(), test.most)
			}
			decoder, err := zstd.NewReader(&sent, zstd.WithDecoderMaxWindow(transfer.CloneWindow), zstd.WithDecoderConcurrency(1))
			if err != nil {
				t.Fatal(err)
			}
			defer decoder.Close()
			want, _ := sumOf(t, io.NewSectionReader(disk, 0, test.size))
			if got, n := sumOf(t, decoder); got != want || n != test.size {
				t.Errorf("%d bytes came out, not the %d of the disk", n, test.size)
			}
		})
	}
}
