package sniff

import (
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
