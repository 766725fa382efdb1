package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// A guest agent that reports another system, interface name and address at each scrape.
func TestValuesOfGuestAgentsAreBounded(t *testing.T) {
	vmi := v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "evil", Namespace: "ns", UID: "evil"}}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "lan"}}
	cache := shelf{vmis: []v1.VirtualMachineInstance{vmi}}
	c := leader(cache)
	systems, addresses := map[string]bool{}, map[string]bool{}
	for i := range maxShown + 8 {
		status := &cache.vmis[0].Status
		status.GuestOSInfo.KernelRelease = fmt.Sprint(i)
		status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{{Name: "lan", InterfaceName: fmt.Sprint("eth", i), IP: fmt.Sprintf("10.0.0.%d", i)}}
		note(t, c, "kubevirt_vmi_info", systems)
		note(t, c, "kubevirt_vmi_status_addresses", addresses)
	}
	// The last one has no value.
	if len(systems) != maxShown+1 || len(addresses) != maxShown+1 {
		t.Errorf("there were %d systems and %d addresses", len(systems), len(addresses))
	}
	expect(t, c, `
kubevirt_vmi_status_addresses{address="",interface_name="",name="evil",namespace="ns",node="",type="SystemInterface",vnic_name="lan"} 1
`, "kubevirt_vmi_status_addresses")
	cache.vmis[0].UID = "next"
	last := maxShown + 7
	expect(t, c, fmt.Sprintf(`
kubevirt_vmi_status_addresses{address="10.0.0.%d",interface_name="eth%[1]d",name="evil",namespace="ns",node="",type="ExternalInterface",vnic_name="lan"} 1
`, last), "kubevirt_vmi_status_addresses")
	if len(c.systems.of) != 1 || len(c.addresses.of) != 1 {
		t.Errorf("VMIs that do not exist are remembered: %d, %d", len(c.systems.of), len(c.addresses.of))
	}
}

// note adds the series of a metric.
func note(t *testing.T, c prometheus.Collector, name string, into map[string]bool) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				into[labels(m)] = true
			}
		}
	}
}

func labels(m *dto.Metric) string {
	var all []string
	for _, l := range m.GetLabel() {
		all = append(all, l.String())
	}
	return strings.Join(all, ",")
}

func TestAVMIThatRunsForLongMayShowOtherValues(t *testing.T) {
	var s shown
	now := time.Unix(1000, 0)
	said := func(of types.UID, value string) bool { return s.bound(of, now, "lan", value)[1] == value }
	for i := range maxShown {
		if !said("a", fmt.Sprint(i)) {
			t.Fatalf("value %d is refused", i)
		}
	}
	if said("a", "new") || !said("a", "3") || !said("b", "new") {
		t.Error("at the limit a new value is shown, or a known one or that of another VMI is not")
	}
	now = now.Add(shownEvery)
	if first, again := said("a", "new"), said("a", "new"); !first || !again || said("a", "newer") {
		t.Error("an hour later not exactly one new value is shown")
	}
	if n := len(s.of["a"].values); n > maxShown {
		t.Errorf("%d values are remembered", n)
	}
	// Values with separators are different ones.
	if v := s.bound("c", now, "a\x00b", "c"); v[0] == "" || len(s.of["c"].values) != 1 {
		t.Errorf("a first value: %q", v)
	}
	if s.bound("c", now, "a", "b\x00c"); len(s.of["c"].values) != 2 {
		t.Error("values with a separator count as one")
	}
}
