package unpack

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os/exec"
	"testing"

	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/sniff"
)

// pack compresses content with the usual programs.
func pack(t testing.TB, content []byte, name string) []byte {
	t.Helper()
	cmd := exec.Command(name, "-c")
	cmd.Stdin = bytes.NewReader(content)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func unpackAll(t testing.TB, content []byte, limit int64) ([]byte, error) {
	t.Helper()
	r, err := Open(t.Context(), sniff.CompressionOf(content), bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	unpacked, err := io.ReadAll(io.LimitReader(r, limit))
	return unpacked, errors.Join(err, r.Close())
}

func TestWhatWasPackedComesOut(t *testing.T) {
	content := bytes.Repeat([]byte("some content "), 100_000)
	for name, packed := range map[string][]byte{
		"gzip":            pack(t, content, "gzip"),
		"gzip, two parts": append(pack(t, content[:1000], "gzip"), pack(t, content[1000:], "gzip")...),
		"xz":              pack(t, content, "xz"),
		"xz, two parts":   append(pack(t, content[:1000], "xz"), pack(t, content[1000:], "xz")...),
		"zstd":            pack(t, content, "zstd"),
		"zstd, two parts": append(pack(t, content[:1000], "zstd"), pack(t, content[1000:], "zstd")...),
	} {
		if got, err := unpackAll(t, packed, 1<<30); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: got %d bytes, %v", name, len(got), err)
		}
	}
}

// failing is a source that breaks.
type failing struct{ content *bytes.Reader }

var errBroken = errors.New("the connection broke")

func (f failing) Read(p []byte) (int, error) {
	if f.content.Len() == 0 {
		return 0, errBroken
	}
	return f.content.Read(p)
}

func TestASourcesErrorIsNotTakenForDamage(t *testing.T) {
	content := bytes.Repeat([]byte("some content "), 100_000)
	for _, program := range []string{"gzip", "xz", "zstd"} {
		packed := pack(t, content, program)
		from := failing{bytes.NewReader(packed[:len(packed)/2])}
		r, err := Open(t.Context(), sniff.CompressionOf(packed), from)
		if err == nil {
			_, err = io.ReadAll(r)
			_ = r.Close()
		}
		if !errors.Is(err, errBroken) {
			t.Errorf("%s: got the error %v", program, err)
		}
	}
}

// FuzzUnpack decompresses arbitrary bytes in this process. It must end, and any error must be a Fault.
func FuzzUnpack(f *testing.F) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte("some content"))
	_ = w.Close()
	f.Add(packed.Bytes())
	f.Add(pack(f, []byte("some content"), "zstd"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if compression := sniff.CompressionOf(content); compression == sniff.None || compression == sniff.XZ {
			return
		}
		var fault *job.Fault
		if _, err := unpackAll(t, content, 1<<24); err != nil && !errors.As(err, &fault) {
			t.Errorf("not a fault: %v", err)
		}
	})
}
