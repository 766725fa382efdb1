package importer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/test/shipped"
)

// made makes an empty image with qemu-img.
func made(t *testing.T, format, size string) []byte {
	t.Helper()
	name := filepath.Join(t.TempDir(), "image")
	command(t, shipped.Program(t, "qemu-img"), "create", "-q", "-f", format, name, size)
	return read(t, name)
}

// with returns content with some bytes replaced.
func with(content []byte, at int, replaced []byte) []byte {
	content = bytes.Clone(content)
	copy(content[at:], replaced)
	return content
}

// ova is an archive of a machine with one disk, as hypervisors export it.
func ova(t *testing.T, vmdk []byte) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string][]byte{"machine.ovf": []byte("<Envelope/>"), "machine-disk1.vmdk": vmdk} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return command(t, "tar", "-C", dir, "--format=ustar", "-cf", "-", "machine.ovf", "machine-disk1.vmdk")
}

// u64 encodes a number as in qcow2.
func u64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func bomb(t *testing.T, content []byte) []byte {
	t.Helper()
	return command(t, "sh", "-c", "(cat "+file(t, content)+"; head -c 1200000000 /dev/zero) | zstd -1 -c")
}

// says gives every request the same answer.
func says(status int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	})
}

// The server hangs or hangs up after some bytes.
func whole(content []byte, after int, hang bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content[:after])
		_ = http.NewResponseController(w).Flush()
		if hang {
			<-r.Context().Done()
		}
	})
}

// Each redirect has another address.
func onAndOn(times int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		if n < times {
			http.Redirect(w, r, fmt.Sprintf("/?n=%d", n+1), http.StatusFound)
		}
	})
}

// Each source must be refused, and the claim be unchanged.
func TestBrokenSources(t *testing.T) {
	disk := someDisk(4*mib, 11)
	qcow2 := image(t, disk, "qcow2")
	backed := with(with(qcow2, 8, u64(512)), 512, []byte("/etc/passwd"))
	copy(backed[16:], []byte{0, 0, 0, 11})
	descriptor := "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n\nRW 8 FLAT \"/etc/passwd\" 0\n"
	vmdk := image(t, disk, "vmdk")
	child := bytes.Replace(vmdk, []byte("parentCID=ffffffff"), []byte("parentCID=12345678"), 1)
	vhd := image(t, disk, "vpc")
	zeros := make([]byte, 64*mib)
	for name, test := range map[string]struct {
		content []byte
		handler http.Handler
		task    transfer.Task
		reason  transfer.Reason
		says    string
	}{
		"no such file":                      {handler: says(404, ""), reason: transfer.ReasonSourceRefused, says: `^127\.0\.0\.1:\d+ answers 404 Not Found: check the path in the source's URL$`},
		"a wrong password":                  {handler: says(401, ""), reason: transfer.ReasonSourceRefused, says: `answers 401 Unauthorized: check the credentials`},
		"a locked file":                     {handler: says(403, ""), reason: transfer.ReasonSourceRefused, says: `answers 403 Forbidden: check the credentials`},
		"a server in trouble":               {handler: says(503, ""), reason: transfer.ReasonSourceUnreachable, says: `answers 503 Service Unavailable$`},
		"a circle of redirects":             {handler: http.RedirectHandler("/", http.StatusFound), reason: transfer.ReasonSourceUnreachable, says: `it redirects in a circle$`},
		"a redirect to a file":              {handler: http.RedirectHandler("file:///etc/passwd", http.StatusFound), reason: transfer.ReasonSourceUnreachable, says: `it redirects to an address of kind "file"$`},
		"a page of text":                    {handler: says(200, "<!DOCTYPE html><title>Sign in</title>"), reason: transfer.ReasonInvalidImage, says: `^the content is not the image of a disk: it is text, and begins with "<!DOCTYPE html>`},
		"a file of odd size":                {content: disk[:1000], reason: transfer.ReasonInvalidImage, says: `no known format, and with its 1000 bytes it is no raw disk`},
		"an odd size in gz":                 {content: compressed(t, disk[:100_000], "gzip"), reason: transfer.ReasonInvalidImage, says: `with its 100000 bytes it is no raw disk`},
		"nothing":                           {content: []byte{}, reason: transfer.ReasonInvalidImage, says: `it is empty$`},
		"a zip archive":                     {content: append([]byte("PK\x03\x04"), disk...), reason: transfer.ReasonInvalidImage, says: `it is a zip archive: unpack it first$`},
		"an OVA":                            {content: ova(t, vmdk), reason: transfer.ReasonInvalidImage, says: `it is an OVA: unpack it by tar, its \.vmdk is the disk$`},
		"an OVA in gz":                      {content: compressed(t, ova(t, vmdk), "gzip", "-1"), reason: transfer.ReasonInvalidImage, says: `it is an OVA: unpack it by tar`},
		"an empty disk in qcow2":            {content: made(t, "qcow2", "0"), reason: transfer.ReasonInvalidImage, says: `: the disk in it is empty$`},
		"an empty disk in vdi":              {content: made(t, "vdi", "0"), reason: transfer.ReasonInvalidImage, says: `: the disk in it is empty$`},
		"a server that redirects on and on": {handler: onAndOn(100), reason: transfer.ReasonSourceUnreachable, says: `it redirects more than 50 times$`},
		"another checksum":                  {content: qcow2, task: transfer.Task{Checksum: "sha1:" + strings.Repeat("0", 40)}, reason: transfer.ReasonChecksumMismatch, says: `^the content's sha1 sum is [0-9a-f]{40}, and 0{40} was asked for`},
		"no checksum":                       {content: qcow2, task: transfer.Task{Checksum: "crc:12"}, reason: transfer.ReasonChecksumMismatch, says: `^the checksum "crc:12" is of no known kind`},
		"gz that is cut":                    {content: compressed(t, disk, "gzip")[:100_000], reason: transfer.ReasonInvalidImage, says: `^the gzip content ends too early: it is truncated$`},
		"xz that is cut":                    {content: compressed(t, disk, "xz", "-0")[:100_000], reason: transfer.ReasonInvalidImage, says: `^the xz content ends too early: it is truncated$`},
		"zst that is cut":                   {content: compressed(t, disk, "zstd")[:100_000], reason: transfer.ReasonInvalidImage, says: `^the zstd content ends too early: it is truncated$`},
		"gz that is damaged":                {content: with(compressed(t, disk, "gzip"), 50_000, []byte("damaged damaged damaged")), reason: transfer.ReasonInvalidImage, says: `^the gzip content is damaged`},
		"xz that is damaged":                {content: with(compressed(t, disk, "xz", "-0"), 50_000, []byte("damaged damaged")), reason: transfer.ReasonInvalidImage, says: `^the xz content is damaged`},
		"gz in gz":                          {content: compressed(t, compressed(t, disk, "gzip"), "gzip"), reason: transfer.ReasonInvalidImage, says: `^the image is compressed twice`},
		"a large raw disk":                  {content: someDisk(5*mib, 1), reason: transfer.ReasonTooLarge, says: `^the disk in the image has 5 MiB, and 4 MiB were asked for: request at least 5 MiB$`},
		"a large disk in gz":                {content: compressed(t, someDisk(5*mib, 1), "gzip"), reason: transfer.ReasonTooLarge, says: `^the disk in the content has more than the 4 MiB that were asked for`},
		"a large qcow2 disk":                {content: made(t, "qcow2", "1T"), reason: transfer.ReasonTooLarge, says: `^the disk in the image has 1 TiB, and 4 MiB were asked for`},
		"a large vmdk disk":                 {content: made(t, "vmdk", "3G"), reason: transfer.ReasonTooLarge, says: `^the disk in the image has 3 GiB, and 4 MiB`},
		"a bomb of zeros":                   {content: compressed(t, zeros, "gzip"), reason: transfer.ReasonTooLarge, says: `more than the 4 MiB`},
		"a bomb behind a disk": {content: bomb(t, qcow2), reason: transfer.ReasonInvalidImage,
			says: `it is a decompression bomb$`},
		"a backing file":          {content: backed, reason: transfer.ReasonUnsafeImage, says: `^the qcow2 image has a backing file, which is not part of it`},
		"a backing file in gz":    {content: compressed(t, backed, "gzip"), reason: transfer.ReasonUnsafeImage, says: `has a backing file`},
		"a data file":             {content: with(qcow2, 72, u64(4)), reason: transfer.ReasonUnsafeImage, says: `keeps its data in another file`},
		"an encrypted qcow2":      {content: with(qcow2, 32, []byte{0, 0, 0, 2}), reason: transfer.ReasonUnsafeImage, says: `is encrypted`},
		"an unknown feature":      {content: with(qcow2, 72, u64(1<<20)), reason: transfer.ReasonInvalidImage, says: `has features \(0x100000\) that Drydock does not know`},
		"a vmdk description":      {content: []byte(descriptor), reason: transfer.ReasonUnsafeImage, says: `refers to other files`},
		"a vmdk of a device":      {content: []byte(strings.Replace(descriptor, "FLAT \"/etc/passwd\" 0", "FLAT \"/dev/sda\"", 1)), reason: transfer.ReasonUnsafeImage, says: `refers to other files`},
		"a vmdk with a parent":    {content: child, reason: transfer.ReasonUnsafeImage, says: `^the vmdk image refers to another file`},
		"a vmdk with extents":     {content: with(vmdk, 12, make([]byte, 8)), reason: transfer.ReasonUnsafeImage, says: `^the vmdk image refers to another file`},
		"a vhd with a parent":     {content: with(vhd, 60, []byte{0, 0, 0, 4}), reason: transfer.ReasonUnsafeImage, says: `^the vpc image refers to another file`},
		"a damaged vhdx":          {content: append([]byte("vhdxfile"), disk...), reason: transfer.ReasonInvalidImage, says: `^the vhdx image can't be read: `},
		"a qcow2 that is cut":     {content: qcow2[:len(qcow2)/2], reason: transfer.ReasonInvalidImage, says: `^the qcow2 image is damaged: .*it is truncated$`},
		"its tables elsewhere":    {content: with(qcow2, 40, u64(1<<40)), reason: transfer.ReasonInvalidImage, says: `it is truncated$`},
		"a table not in place":    {content: with(qcow2, 40, u64(12345)), reason: transfer.ReasonInvalidImage, says: `its L1 table is at 12345$`},
		"a window of a GiB":       {content: []byte("\x28\xb5\x2f\xfd\x00\xa0"), reason: transfer.ReasonLimit, says: `a window of more than 64 MiB`},
		"a dictionary of a GiB":   {content: compressed(t, disk[:mib], "xz", "--lzma2=preset=0,dict=1GiB"), reason: transfer.ReasonLimit, says: `a dictionary of more than 64 MiB`},
		"a server that stalls":    {handler: whole(disk, mib, true), task: transfer.Task{StallSeconds: 5}, reason: transfer.ReasonCut, says: `^the source stalled: no byte came for 5s$`},
		"a server that ends":      {handler: whole(disk, mib, false), reason: transfer.ReasonCut, says: `^the connection broke after .*MiB`},
		"space for nothing":       {content: qcow2, task: transfer.Task{Size: 1 << 50, Preallocate: true}, reason: transfer.ReasonNoSpace, says: `^the claim is full: request a larger one`},
		"an archive that is none": {content: disk, task: transfer.Task{Archive: true}, reason: transfer.ReasonInvalidImage, says: `^the archive can't be read`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var url string
			if test.handler != nil {
				s := httptest.NewServer(test.handler)
				defer s.Close()
				url = s.URL
			} else {
				url = serve(t, test.content, "v1").URL
			}
			test.task.URL = url + "/disk"
			if test.task.Size == 0 {
				test.task.Size = 4 * mib
			}
			if test.task.StallSeconds == 0 {
				test.task.StallSeconds = 60
			}
			p := newPod(t, test.task)
			result := p.run()
			if result.Reason != test.reason || !regexp.MustCompile(test.says).MatchString(result.Message) {
				t.Errorf("got %s: %s", result.Reason, result.Message)
			}
			if left := p.left(); len(left) > 0 {
				t.Errorf("in the claim are %q", left)
			}
		})
	}
}

func TestServersThatAreNotTrusted(t *testing.T) {
	disk := someDisk(mib, 1)
	s := httptest.NewTLSServer(serve(t, disk, "v1"))
	defer s.Close()
	p := newPod(t, transfer.Task{URL: s.URL, Size: mib})
	result := p.run()
	if result.Reason != transfer.ReasonUntrusted || !strings.Contains(result.Message, "is not trusted: name its authority in the source's certConfigMap") {
		t.Errorf("got %+v", result)
	}
	pem := command(t, "openssl", "x509", "-inform", "DER", "-in", file(t, s.Certificate().Raw))
	if err := os.WriteFile(filepath.Join(p.job.CA, "ca.pem"), pem, 0o600); err != nil {
		t.Fatal(err)
	}
	p.task.CA = true
	if result := p.run(); result.Reason != transfer.ReasonCompleted || !bytes.Equal(p.disk(), disk) {
		t.Errorf("with its authority: got %+v", result)
	}
}

func file(t *testing.T, content []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestAServerThatIsNotThere(t *testing.T) {
	// No server gets this port by chance.
	p := newPod(t, transfer.Task{URL: "http://127.0.0.1:1", Size: mib, StallSeconds: 1})
	began := time.Now()
	result := p.run()
	if result.Reason != transfer.ReasonSourceUnreachable || !strings.Contains(result.Message, "connection refused") {
		t.Errorf("got %+v", result)
	}
	if took := time.Since(began); took > patience {
		t.Errorf("it took %s", took)
	}
}
