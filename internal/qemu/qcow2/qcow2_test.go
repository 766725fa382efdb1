package qcow2

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"drydock.dev/drydock/test/shipped"
)

func create(t *testing.T, image Image) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "new.qcow2"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Create(f, image); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

func qemuImg(t *testing.T, args ...string) []byte {
	t.Helper()
	var warnings bytes.Buffer
	command := exec.Command(shipped.Program(t, "qemu-img"), args...)
	command.Stderr = &warnings
	out, err := command.Output()
	if err != nil {
		t.Fatalf("qemu-img %s: %v\n%s%s", strings.Join(args, " "), err, out, &warnings)
	}
	return out
}

type info struct {
	Format      string `json:"format"`
	VirtualSize int64  `json:"virtual-size"`
	Backing     string `json:"backing-filename"`
	BackingFmt  string `json:"backing-filename-format"`
}

func inspect(t *testing.T, path string) info {
	t.Helper()
	var i info
	if err := json.Unmarshal(qemuImg(t, "info", "--output=json", path), &i); err != nil {
		t.Fatal(err)
	}
	return i
}

func TestNewImagesAreSoundForQEMU(t *testing.T) {
	for name, size := range map[string]int64{
		"nothing": 0, "one byte": 1, "one sector": 512, "less than an L2 table": 100 << 20,
		"exactly an L2 table": l1Reach, "two L1 clusters": l1Reach * (clusterSize/8 + 1), "hundred tebibytes": 100 << 40,
	} {
		t.Run(name, func(t *testing.T) {
			path := create(t, Image{VirtualSize: size})
			qemuImg(t, "check", path)
			want := (size + 511) / 512 * 512
			if got := inspect(t, path); got != (info{Format: "qcow2", VirtualSize: want}) {
				t.Errorf("qemu-img sees %+v", got)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			h, err := Read(f)
			if err != nil || h.VirtualSize != want || h.Check() != nil {
				t.Errorf("reading it back: %+v, %v, %v", h, err, h.Check())
			}
		})
	}
}

func TestAnOverlayShowsItsBackingImageAndTakesWrites(t *testing.T) {
	base := filepath.Join(t.TempDir(), "base.raw")
	content := bytes.Repeat([]byte("dock"), 5<<20/4)
	if err := os.WriteFile(base, content, 0o600); err != nil {
		t.Fatal(err)
	}
	path := create(t, Image{VirtualSize: int64(len(content)), Backing: base, BackingFormat: "raw"})
	if got := inspect(t, path); got.Backing != base || got.BackingFmt != "raw" {
		t.Errorf("qemu-img sees %+v", got)
	}
	qemuImg(t, "compare", "-F", "raw", "-f", "qcow2", path, base)
	if out, err := exec.Command(shipped.Program(t, "qemu-io"), "-f", "qcow2", "-c", "write -P 7 1M 128k", path).CombinedOutput(); err != nil {
		t.Fatalf("writing to the overlay: %v\n%s", err, out)
	}
	qemuImg(t, "check", path)
	flat := filepath.Join(t.TempDir(), "flat.raw")
	qemuImg(t, "convert", "-f", "qcow2", "-O", "raw", path, flat)
	got, err := os.ReadFile(flat)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(content)
	copy(want[1<<20:], bytes.Repeat([]byte{7}, 128<<10))
	if !bytes.Equal(got, want) {
		t.Error("the overlay does not read as its backing image with the write on top")
	}
}

func TestWhatMustNotBeOpenedIsRefused(t *testing.T) {
	dir := t.TempDir()
	base := filepath.Join(dir, "base")
	qemuImg(t, "create", "-f", "raw", base, "1M")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"plain":         {[]string{"-f", "qcow2"}, ""},
		"old version":   {[]string{"-f", "qcow2", "-o", "compat=0.10"}, ""},
		"zstd":          {[]string{"-f", "qcow2", "-o", "compression_type=zstd"}, ""},
		"extended L2":   {[]string{"-f", "qcow2", "-o", "extended_l2=on"}, ""},
		"backing file":  {[]string{"-f", "qcow2", "-b", base, "-F", "raw"}, "backing file"},
		"external data": {[]string{"-f", "qcow2", "-o", "data_file=" + base + ".data"}, "another file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			qemuImg(t, append(append([]string{"create"}, c.args...), path, "1M")...)
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			h, err := Read(f)
			if err != nil {
				t.Fatal(err)
			}
			if h.VirtualSize != 1<<20 {
				t.Errorf("virtual size %d", h.VirtualSize)
			}
			err = h.Check()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("Check() = %v, want %q", err, c.want)
			}
		})
	}
}

func TestOtherFilesAreNotQCOW2(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "short": Magic, "text": strings.Repeat("x", 200),
	} {
		if _, err := Read(strings.NewReader(content)); !errors.Is(err, ErrNotQCOW2) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(header(Image{Backing: "x", BackingFormat: "raw"}, 1<<30, 2))
	f.Add(bytes.Repeat([]byte{0xff}, headerV3))
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, err := Read(bytes.NewReader(raw))
		if err == nil && h.VirtualSize < 0 {
			t.Errorf("negative size %d", h.VirtualSize)
		}
	})
}

func head(edits ...func([]byte)) []byte {
	h := make([]byte, HeaderSize)
	copy(h, header(Image{VirtualSize: 1 << 20}, 1<<20, 1))
	for _, edit := range edits {
		edit(h)
	}
	return h
}

func set32(at int, value uint32) func([]byte) {
	return func(h []byte) { binary.BigEndian.PutUint32(h[at:], value) }
}

func set64(at int, value uint64) func([]byte) {
	return func(h []byte) { binary.BigEndian.PutUint64(h[at:], value) }
}

func TestWhatAHeaderSays(t *testing.T) {
	compressed := set64(offIncompatible, featureCompression)
	long := set32(offHeaderLength, HeaderSize)
	for name, c := range map[string]struct {
		head        []byte
		err         error
		obstacle    Obstacle
		compression int
		extended    bool
	}{
		"a plain image":                    {head: head()},
		"compressed as ever":               {head: head(compressed, long), compression: CompressionDeflate},
		"compressed by zstd":               {head: head(compressed, long, func(h []byte) { h[offCompression] = 1 }), compression: CompressionZstd},
		"of a kind that nobody has named":  {head: head(compressed, long, func(h []byte) { h[offCompression] = 9 }), compression: 9},
		"a header without room for a kind": {head: head(compressed), compression: CompressionUnnamed},
		"a file that ends before the kind": {head: head(compressed, long)[:headerV3], compression: CompressionUnnamed},
		"extended second tables":           {head: head(set64(offIncompatible, featureExtendedL2)), extended: true},
		"used when the power failed":       {head: head(set64(offIncompatible, featureDirty))},
		"a backing file by its place":      {head: head(set64(offBackingOffset, 1)), obstacle: BackingFile},
		"a backing file by its length":     {head: head(set32(offBackingSize, 1)), obstacle: BackingFile},
		"data in another file":             {head: head(set64(offIncompatible, featureDataFile)), obstacle: DataFile},
		"encrypted":                        {head: head(set32(offCrypt, 2)), obstacle: Encrypted},
		"corrupt":                          {head: head(set64(offIncompatible, featureCorrupt)), obstacle: Corrupt},
		"of a later time":                  {head: head(set64(offIncompatible, 1<<63)), obstacle: Unknown},
		"version 2 has no features":        {head: head(set32(offVersion, 2), set64(offIncompatible, 1<<63))},
		"version 2 may be shorter":         {head: head(set32(offVersion, 2))[:headerV2]},
		"version 3 may not":                {head: head()[:headerV3-1], err: ErrCut},
		"the format before this one":       {head: head(set32(offVersion, 1)), err: VersionError(1)},
		"a format after this one":          {head: head(set32(offVersion, 4)), err: VersionError(4)},
		"as large as is believed":          {head: head(set64(offSize, maxSize))},
		"larger":                           {head: head(set64(offSize, maxSize+1)), err: SizeError(maxSize + 1)},
		"a negative size, to who reads so": {head: head(set64(offSize, 1<<63)), err: SizeError(1 << 63)},
		"not even a header of version 2":   {head: head()[:headerV2-1], err: ErrNotQCOW2},
		"something else":                   {head: head(func(h []byte) { h[0] = 'q' }), err: ErrNotQCOW2},
		"nothing":                          {err: ErrNotQCOW2},
	} {
		h, err := Parse(c.head)
		if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%s: error %v, want %v", name, err, c.err)
		}
		if h.Obstacle() != c.obstacle || h.Compression != c.compression || h.ExtendedL2() != c.extended {
			t.Errorf("%s: %+v with obstacle %d", name, h, h.Obstacle())
		}
		if (h.Check() == nil) != (c.obstacle == None) {
			t.Errorf("%s: Check() = %v", name, h.Check())
		}
		if err == nil && (h.L1Entries != 1 || h.L1Offset != l1Cluster*clusterSize || h.ClusterBits != clusterBits) {
			t.Errorf("%s: tables %+v", name, h)
		}
	}
}
