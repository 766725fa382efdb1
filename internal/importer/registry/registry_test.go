package registry_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	regtest "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/fill"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/registry"
)

const diskSize = 4 << 20

// A folder's name ends with a slash.
type entry struct {
	name    string
	content []byte
	link    string
}

func layerOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Size: int64(len(e.content)), Mode: 0o644, Typeflag: tar.TypeReg}
		switch {
		case strings.HasSuffix(e.name, "/"):
			header.Typeflag, header.Mode = tar.TypeDir, 0o755
		case e.link != "":
			header.Typeflag, header.Linkname = tar.TypeSymlink, e.link
		}
		must(t, w.WriteHeader(header))
		_, err := w.Write(e.content)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func gzipped(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(data)
	_ = w.Close()
	return b.Bytes()
}

func zstandard(t *testing.T, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	must(t, err)
	return w.EncodeAll(data, nil)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func random(n int) []byte {
	data := make([]byte, n)
	rand.New(rand.NewSource(int64(n))).Read(data)
	return data
}

func push(t *testing.T, handler http.Handler, layers ...[]byte) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	pushTo(t, host, http.DefaultTransport, layers...)
	return host
}

func pushTo(t *testing.T, host string, transport http.RoundTripper, layers ...[]byte) {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: "amd64"})
	must(t, err)
	for _, layer := range layers {
		img, err = mutate.AppendLayers(img, static.NewLayer(layer, types.OCILayer))
		must(t, err)
	}
	ref, err := name.ParseReference(host+"/disks/test:1", name.Insecure)
	must(t, err)
	must(t, remote.Write(ref, img, remote.WithTransport(transport)))
}

func quiet() http.Handler { return regtest.New(regtest.Logger(log.New(io.Discard, "", 0))) }

func jobFor(t *testing.T, url string) *job.Job {
	t.Helper()
	j := &job.Job{Places: job.Under(t.TempDir()), Meter: job.NewMeter()}
	j.Task = transfer.Task{
		Kind: transfer.KindRegistry, URL: url, Insecure: true, Size: diskSize, AllowedNetworks: []string{"127.0.0.0/8"},
	}
	for _, dir := range []string{j.Places.Dir, j.Places.Work, j.Places.CA, j.Places.Credentials, j.Places.SourceDir} {
		must(t, os.MkdirAll(dir, 0o755))
	}
	return j
}

func importDisk(t *testing.T, j *job.Job) error {
	t.Helper()
	source, err := registry.New(j)
	if err != nil {
		return err
	}
	_, err = fill.Fill(t.Context(), j, source)
	return err
}

func holds(t *testing.T, j *job.Job, want []byte) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(j.Places.Dir, "disk.img"))
	must(t, err)
	if !bytes.Equal(got, append(bytes.Clone(want), make([]byte, diskSize-len(want))...)) {
		t.Error("the disk is not the one in the image")
	}
}

// No disk may look complete.
func refused(t *testing.T, j *job.Job, err error, reason transfer.Reason, says string) {
	t.Helper()
	if err == nil {
		t.Fatal("it was imported")
	}
	if fault := job.FaultOf(err); fault.Reason != reason || !strings.Contains(fault.Message, says) {
		t.Errorf("%s: %s; want %s and %q", fault.Reason, fault.Message, reason, says)
	}
	if _, err := os.Stat(filepath.Join(j.Places.Dir, "disk.img")); !errors.Is(err, os.ErrNotExist) {
		t.Error("something looks whole")
	}
}

func TestTheDiskInAnImage(t *testing.T) {
	disk, other := random(2<<20), random(1<<20)
	folder := entry{name: "disk/"}
	for what, layers := range map[string][][]byte{
		"a gzip layer":        {gzipped(layerOf(t, folder, entry{name: "disk/disk.img", content: disk}))},
		"a zstd layer":        {zstandard(t, layerOf(t, folder, entry{name: "disk/disk.img", content: disk}))},
		"a plain layer":       {layerOf(t, folder, entry{name: "./disk/disk.img", content: disk})},
		"a compressed disk":   {gzipped(layerOf(t, entry{name: "/disk/disk.img.gz", content: gzipped(disk)}))},
		"between other files": {gzipped(layerOf(t, entry{name: "a", content: other}, entry{name: "disk/d", content: disk}, entry{name: "z", content: other}))},
		"below other layers":  {gzipped(layerOf(t, entry{name: "disk/d", content: disk})), gzipped(layerOf(t, entry{name: "etc/passwd", content: other}))},
		"the topmost of two":  {gzipped(layerOf(t, entry{name: "disk/d", content: other})), gzipped(layerOf(t, entry{name: "disk/d", content: disk}))},
		"one was removed":     {layerOf(t, entry{name: "disk/d", content: disk}), layerOf(t, entry{name: "disk/o", content: other}), layerOf(t, entry{name: "disk/.wh.o"})},
		"all before were":     {layerOf(t, entry{name: "disk/o", content: other}), layerOf(t, entry{name: "disk/.wh..wh..opq"}, entry{name: "disk/d", content: disk})},
		"a folder like /disk": {layerOf(t, entry{name: "disks/o", content: other}, entry{name: "disk/d", content: disk})},
	} {
		t.Run(what, func(t *testing.T) {
			j := jobFor(t, "docker://"+push(t, quiet(), layers...)+"/disks/test:1")
			must(t, importDisk(t, j))
			holds(t, j, disk)
		})
	}
}

func TestAnImageWithoutOneDisk(t *testing.T) {
	disk := random(1 << 20)
	for what, test := range map[string]struct {
		layers [][]byte
		says   string
	}{
		"no layers":         {nil, "has no disk"},
		"no /disk":          {[][]byte{layerOf(t, entry{name: "a", content: disk})}, "has no disk"},
		"removed":           {[][]byte{layerOf(t, entry{name: "disk/d", content: disk}), layerOf(t, entry{name: ".wh.disk"})}, "has no disk"},
		"two":               {[][]byte{layerOf(t, entry{name: "disk/a", content: disk}, entry{name: "disk/b", content: disk})}, "several files"},
		"a link":            {[][]byte{layerOf(t, entry{name: "disk/a", link: "/etc/passwd"})}, "no file but a link"},
		"not a tar file":    {[][]byte{random(4096)}, "has a layer that is damaged"},
		"a truncated layer": {[][]byte{layerOf(t, entry{name: "disk/d", content: disk})[:1<<19]}, "reading the container image"},
	} {
		t.Run(what, func(t *testing.T) {
			j := jobFor(t, "docker://"+push(t, quiet(), test.layers...)+"/disks/test:1")
			reason := transfer.ReasonInvalidImage
			if strings.HasPrefix(test.says, "reading") {
				reason = transfer.ReasonCut
			}
			refused(t, j, importDisk(t, j), reason, test.says)
		})
	}
}

func spoiled(inner http.Handler, change func(w http.ResponseWriter, text []byte)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/sha256:") {
			inner.ServeHTTP(w, r)
			return
		}
		record := httptest.NewRecorder()
		inner.ServeHTTP(record, r)
		if strings.HasPrefix(record.Body.String(), "{") { // the image's configuration
			_, _ = w.Write(record.Body.Bytes())
			return
		}
		change(w, record.Body.Bytes())
	})
}

// The damage is behind the disk's end, where only the layer's digest shows it, and inside the disk.
func TestALayerMustHaveItsDigest(t *testing.T) {
	disk := random(1 << 20)
	layer := layerOf(t, entry{name: "disk/d", content: disk}, entry{name: "z", content: random(4096)})
	for what, at := range map[string]int{"in the disk": 1 << 19, "after the disk": len(disk) + 2048} {
		t.Run(what, func(t *testing.T) {
			handler := spoiled(quiet(), func(w http.ResponseWriter, text []byte) {
				text = bytes.Clone(text)
				text[at] ^= 1
				_, _ = w.Write(text)
			})
			j := jobFor(t, "docker://"+push(t, handler, layer)+"/disks/test:1")
			refused(t, j, importDisk(t, j), transfer.ReasonChecksumMismatch, "is damaged")
		})
	}
}

func TestARegistryThatBreaksOff(t *testing.T) {
	layer := layerOf(t, entry{name: "disk/d", content: random(1 << 20)})
	handler := spoiled(quiet(), func(w http.ResponseWriter, text []byte) { _, _ = w.Write(text[:len(text)/2]) })
	j := jobFor(t, "docker://"+push(t, handler, layer)+"/disks/test:1")
	if reason := job.FaultOf(importDisk(t, j)).Reason; reason.Permanent() {
		t.Errorf("the import is given up: %s", reason)
	}
}

func TestWhatARegistryRefuses(t *testing.T) {
	layer := layerOf(t, entry{name: "disk/d", content: random(1 << 20)})
	inner := quiet()
	guarded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if r.Method == http.MethodGet && user+password != "mesecret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	})
	server := httptest.NewServer(guarded)
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	pushTo(t, host, basic{}, layer)

	j := jobFor(t, "docker://"+host+"/disks/test:1")
	refused(t, j, importDisk(t, j), transfer.ReasonSourceRefused, "does not let")

	must(t, os.WriteFile(filepath.Join(j.Places.Credentials, "accessKeyId"), []byte("me\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(j.Places.Credentials, "secretKey"), []byte("secret\n"), 0o600))
	j.Task.Credentials = true
	must(t, importDisk(t, j))

	j = jobFor(t, "docker://"+push(t, quiet(), layer)+"/disks/none:1")
	refused(t, j, importDisk(t, j), transfer.ReasonSourceRefused, "has no container image")
	j = jobFor(t, "docker://127.0.0.1:1/disks/test:1")
	refused(t, j, importDisk(t, j), transfer.ReasonSourceUnreachable, "127.0.0.1:1 can't be reached")
	j = jobFor(t, "docker://host/UPPER CASE")
	refused(t, j, importDisk(t, j), transfer.ReasonSourceRefused, "does not name a container image")
	j = jobFor(t, "ftp://host/x")
	refused(t, j, importDisk(t, j), transfer.ReasonSourceRefused, "must begin with docker://")
}

// basic authenticates the test itself.
type basic struct{}

func (basic) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.SetBasicAuth("me", "secret")
	return http.DefaultTransport.RoundTrip(r)
}

func TestARegistrysCertificate(t *testing.T) {
	disk := random(1 << 20)
	server := httptest.NewTLSServer(quiet())
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "https://")
	pushTo(t, host, server.Client().Transport, layerOf(t, entry{name: "disk/d", content: disk}))

	j := jobFor(t, "docker://"+host+"/disks/test:1")
	j.Task.Insecure = false
	refused(t, j, importDisk(t, j), transfer.ReasonUntrusted, "is not trusted")

	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	must(t, os.WriteFile(filepath.Join(j.Places.CA, "ca.crt"), text, 0o600))
	j.Task.CA = true
	must(t, importDisk(t, j))
	holds(t, j, disk)

	j = jobFor(t, "docker://"+host+"/disks/test:1")
	must(t, importDisk(t, j))
}

func TestTheDiskInAMountedImage(t *testing.T) {
	disk := random(2 << 20)
	j := jobFor(t, "file:///source")
	folder := filepath.Join(j.Places.SourceDir, "disk")
	must(t, os.Mkdir(folder, 0o755))
	refused(t, j, importDisk(t, j), transfer.ReasonInvalidImage, "has no disk")

	must(t, os.Symlink("/etc/passwd", filepath.Join(folder, "disk.img")))
	refused(t, j, importDisk(t, j), transfer.ReasonInvalidImage, "no file but a link")
	must(t, os.Remove(filepath.Join(folder, "disk.img")))

	must(t, os.WriteFile(filepath.Join(folder, "disk.img"), disk, 0o600))
	must(t, importDisk(t, j))
	holds(t, j, disk)
	must(t, os.Remove(filepath.Join(j.Places.Dir, "disk.img")))

	must(t, os.WriteFile(filepath.Join(folder, "disk2.img"), disk, 0o600))
	refused(t, j, importDisk(t, j), transfer.ReasonInvalidImage, "several files")

	must(t, os.RemoveAll(folder))
	must(t, os.Symlink("/etc", folder))
	refused(t, j, importDisk(t, j), transfer.ReasonInvalidImage, "can't be read")
}
