package machine

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/contracts/launch"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden compares the command line of each VMI in testdata as exact text. Guests see a difference there: read it
// before -update.
func TestGolden(t *testing.T) {
	for _, file := range vmiFiles(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			vmi := readVMI(t, file)
			in := prepared(vmi)
			in.KVM = strings.Contains(name, "kvm")
			m, err := Build(in)
			if err != nil {
				t.Fatalf("building the machine: %v", err)
			}
			compareGolden(t, strings.TrimSuffix(file, ".yaml")+".args", render(m.Args()))
			images, err := json.MarshalIndent(Images(vmi), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, strings.TrimSuffix(file, ".yaml")+".images", string(images)+"\n")
		})
	}
}

// vmiFiles lists the VMIs in testdata, beside which `make mutation` writes its survivors.
func vmiFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	files = slices.DeleteFunc(files, func(file string) bool { return filepath.Base(file) == "mutants.yaml" })
	if err != nil || len(files) == 0 {
		t.Fatalf("finding the VMIs: %v, %d files", err, len(files))
	}
	return files
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// render formats an option and its value on one line.
func render(args []string) string {
	var text strings.Builder
	for i, a := range args {
		switch {
		case i == 0:
		case isOption(a):
			text.WriteByte('\n')
		default:
			text.WriteByte(' ')
		}
		text.WriteString(a)
	}
	return text.String() + "\n"
}

func isOption(arg string) bool { return strings.HasPrefix(arg, "-") }

func readVMI(t testing.TB, file string) *v1.VirtualMachineInstance {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	vmi := &v1.VirtualMachineInstance{}
	if err := yaml.UnmarshalStrict(text, vmi); err != nil {
		t.Fatalf("reading %s: %v", file, err)
	}
	return vmi
}

// prepared is the Input of a VMI on a node without problems.
func prepared(vmi *v1.VirtualMachineInstance) Input {
	in := Input{
		VMI: vmi, Images: make(map[string]launch.PreparedImage), NICs: make(map[string]NIC),
		Now: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC),
	}
	for _, image := range Images(vmi) {
		p := launch.PreparedImage{
			Name: image.Name, Source: image.Source, SourceFormat: image.Format, Overlay: image.Overlay,
			DirectIO: true, LogicalBlock: 512, PhysicalBlock: 4096, VirtualSize: 1 << 30,
		}
		if strings.HasPrefix(image.Name, "block") {
			p.Source, p.BlockDevice = image.Device, true
		}
		if p.Source != "" && p.SourceFormat == "" {
			p.SourceFormat = "qcow2"
		}
		in.Images[image.Name] = p
	}
	for i, iface := range vmi.Spec.Domain.Devices.Interfaces {
		in.NICs[iface.Name] = NIC{Tap: "tap" + string(rune('0'+i)), MTU: 1450, VhostNet: true}
	}
	return in
}
