package sniff

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

func TestCompressionsAreKnownByTheirMagic(t *testing.T) {
	for head, want := range map[string]Compression{
		"":                         None,
		"\x1f\x8b":                 None,
		"\x1f\x8b\x08\x00":         Gzip,
		"\xfd7zXZ\x00\x00":         XZ,
		"\x28\xb5\x2f\xfd":         Zstd,
		"\x5a\x2a\x4d\x18\x04\x00": Zstd,
		"QFI\xfb":                  None,
	} {
		if got := CompressionOf([]byte(head)); got != want {
			t.Errorf("%q: got %q, want %q", head, got, want)
		}
	}
}

func TestFormatsAreKnownByTheirMagic(t *testing.T) {
	for head, want := range map[string]Format{
		"QFI\xfb\x00": Qcow2,
		"KDMV":        VMDK,
		"vhdxfile":    VHDX,
		"conectix":    VHD,
		strings.Repeat("<", 64) + "\x7f\x10\xda\xbe": VDI,
		strings.Repeat("\x00", 512):                  Raw,
		"\xeb\x63\x90":                               Raw,
		"LUKS\xba\xbe":                               Raw,
		"a guest's own text is a disk":               Raw,
	} {
		if got, err := FormatOf([]byte(head), 1024); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", head, got, err, want)
		}
	}
}

func TestWhatIsNoDiskIsSaidSo(t *testing.T) {
	for head, want := range map[string]string{
		"":                             "it is empty",
		"\x1f\x8b\x08":                 "the image is compressed twice: compress it once",
		"PK\x03\x04":                   "it is a zip archive: unpack it first",
		" \n<HTML lang=en><head>\x00é": `it is text, and begins with "<HTML lang=en><head>"`,
		`{"error": "no"}`:              `it is text, and begins with "{"error": "no"}"`,
	} {
		_, err := FormatOf([]byte(head), 1024)
		if err == nil || job.FaultOf(err).Reason != transfer.ReasonInvalidImage || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: got the error %v", head, err)
		}
	}
	_, err := FormatOf([]byte("# Disk DescriptorFile\n"), 512)
	if err == nil || job.FaultOf(err).Reason != transfer.ReasonUnsafeImage {
		t.Errorf("a description: got the error %v", err)
	}
	for size, fine := range map[int64]bool{-1: true, 512: true, 0: false, 511: false} {
		if err := CheckRaw(size); (err == nil) != fine {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func packed(t *testing.T, name string, format tar.Format) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	content := []byte(strings.Repeat("x", 1000))
	err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Format: format})
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Older programs wrote no magic.
func old(archive []byte) []byte {
	for i := tarMagic; i < tarMagic+8; i++ {
		archive[i] = 0
	}
	sum := 0
	for i, b := range archive[:tarHeader] {
		if i >= tarSum && i < tarSumEnd {
			b = ' '
		}
		sum += int(b)
	}
	copy(archive[tarSum:tarSumEnd], []byte(strings.Repeat(" ", 8)))
	digits := []byte("000000\x00 ")
	for i := 5; sum > 0; i, sum = i-1, sum/8 {
		digits[i] = byte('0' + sum%8)
	}
	copy(archive[tarSum:tarSumEnd], digits)
	return archive
}

func TestArchivesAreNoDisks(t *testing.T) {
	const unpack = "a tar archive: unpack it first, or unpack it into a file system with contentType archive"
	damaged := packed(t, "disk.img", tar.FormatUSTAR)
	damaged[0]++
	for name, test := range map[string]struct {
		head []byte
		says string
	}{
		"an OVA":                          {packed(t, "Machine.ovf", tar.FormatUSTAR), "an OVA: unpack it by tar, its .vmdk is the disk"},
		"an OVA with a name in capitals":  {packed(t, "MACHINE.OVF", tar.FormatGNU), "an OVA: unpack it by tar, its .vmdk is the disk"},
		"an XVA":                          {packed(t, "ova.xml", tar.FormatUSTAR), "an XVA, an archive of a machine of Xen: export its disk by itself"},
		"a tar archive":                   {packed(t, "disk.img", tar.FormatUSTAR), unpack},
		"one of GNU's":                    {packed(t, strings.Repeat("long/", 40)+"disk.img", tar.FormatGNU), unpack},
		"one with extended headers":       {packed(t, strings.Repeat("long/", 60)+"disk.img", tar.FormatPAX), unpack},
		"one from before there was magic": {old(packed(t, "disk.img", tar.FormatUSTAR)), unpack},
		"a header that is none":           {damaged, ""},
		"an empty disk":                   {make([]byte, 1024), ""},
		"a Debian package":                {[]byte("!<arch>\ndebian-binary   1700000000  0"), "a Debian package: unpack it first, the disk may be a file in it"},
		"another archive of that kind":    {[]byte("!<arch>\nlib.o/"), "an ar archive: unpack it first"},
		"an RPM package":                  {[]byte("\xed\xab\xee\xdb\x03\x00"), "an RPM package: unpack it first, the disk may be a file in it"},
		"a cpio archive":                  {[]byte("070701000000"), "a cpio archive: unpack it first"},
	} {
		_, err := FormatOf(test.head, 1024)
		switch {
		case test.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.says != "" && (err == nil || job.FaultOf(err).Reason != transfer.ReasonInvalidImage || !strings.HasSuffix(err.Error(), ": it is "+test.says)):
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
}
