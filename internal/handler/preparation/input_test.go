package preparation

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/volumes"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine"
)

func TestTheClustersSMBIOSReachesTheGuest(t *testing.T) {
	settings := &clusterconfig.Current{}
	settings.Set(&v1.KubeVirt{Spec: v1.KubeVirtSpec{Configuration: v1.KubeVirtConfiguration{
		SMBIOSConfig: &v1.SMBiosConfiguration{Manufacturer: "Shipyard, Ltd.", Product: "Hull", Version: "9", Sku: "s", Family: "Sea"},
	}}})
	d := &Pod{Env: &Env{Settings: settings.Get, KVM: func() (usable, known bool) { return false, true }, Now: time.Now}}
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "vm", Namespace: "ns", UID: "u"}}
	memory := resource.MustParse("64Mi")
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: &memory}
	m, err := machine.Build(d.Input(vmi, &Prepared{}))
	if err != nil {
		t.Fatal(err)
	}
	const want = "type=1,manufacturer=Shipyard,, Ltd.,product=Hull,version=9,sku=s,family=Sea"
	if args := strings.Join(m.Args(), " "); !strings.Contains(args, want) {
		t.Errorf("the command line lacks %q:\n%s", want, args)
	}
}

// A machine must know which claims are preallocated.
func TestClaimsReachTheMachine(t *testing.T) {
	d := &Pod{Env: &Env{Settings: (&clusterconfig.Current{}).Get, KVM: func() (usable, known bool) { return false, true }, Now: time.Now}}
	in := d.Input(&v1.VirtualMachineInstance{}, &Prepared{Claims: volumes.Claims{"root": {Preallocated: true}}})
	if claim := in.Claims["root"]; claim == nil || !claim.Preallocated {
		t.Errorf("the claims are %+v", in.Claims)
	}
}
