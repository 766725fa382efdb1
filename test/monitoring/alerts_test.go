package monitoring

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/ruletable"
)

func TestRulesNameOnlyMetricsAndLabelsThatAreServed(t *testing.T) {
	known, err := everything()
	if err != nil {
		t.Fatal(err)
	}
	template := regexp.MustCompile(`\$labels\.([a-z_]+)`)
	for _, a := range ruletable.Alerts() {
		has, err := known.check(a.Expr)
		if err != nil {
			t.Errorf("%s: %v", a.Name, err)
			continue
		}
		for _, match := range template.FindAllStringSubmatch(a.Summary+a.Description, -1) {
			if !has[match[1]] {
				t.Errorf("%s: its texts use the label %s, which its expression does not have", a.Name, match[1])
			}
		}
	}
}

func TestTheCheckFindsWhatIsNotServed(t *testing.T) {
	known, err := everything()
	if err != nil {
		t.Fatal(err)
	}
	for expr, want := range map[string]string{
		`kubevirt_vmi_inf`:                      `the metric "kubevirt_vmi_inf" is not served`,
		`kubevirt_vmi_info{phases="running"}`:   "has no label phases",
		`sum by (nodes) (kubevirt_vmi_info)`:    "there is no label nodes",
		`sum(kubevirt_vmi_info) * on (node) up`: "there is no label node",
		`max by (node) (kubevirt_vmi_info) * on (node) group_left (vm) max by (node) (kubevirt_vmi_info)`: "there is no label vm",
		`label_replace(sum(up), "a", "$1", "pod", "")`:                                                    "there is no label pod",
		`drydock_vmi_migration_downtime_seconds`:                                                          "is not served",
		`sum(`:                                                                                            "unclosed left parenthesis",
	} {
		if _, err := known.check(expr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", expr, err, want)
		}
	}
}

// healthy is a cluster of two nodes with two guests, which does all that healthy ones do: a user has paused a guest, a
// migration has succeeded, a CD-ROM is full, an API version was once used. A second job scrapes Drydock's pods, too.
const healthy = `
up{namespace="kubevirt",pod="virt-api-1"} 1
up{namespace="kubevirt",pod="virt-api-2"} 1
up{namespace="kubevirt",pod="virt-controller-1"} 1
up{namespace="kubevirt",pod="virt-controller-2"} 1
up{namespace="kubevirt",pod="virt-handler-1"} 1
up{namespace="kubevirt",pod="virt-handler-2"} 1
kubevirt_virt_api_ready_status{namespace="kubevirt",pod="virt-api-1"} 1
kubevirt_virt_api_ready_status{namespace="kubevirt",pod="virt-api-2"} 1
kubevirt_virt_controller_ready_status{namespace="kubevirt",pod="virt-controller-1"} 1
kubevirt_virt_controller_ready_status{namespace="kubevirt",pod="virt-controller-2"} 1
kubevirt_virt_handler_ready_status{namespace="kubevirt",pod="virt-handler-1"} 1
kubevirt_virt_handler_ready_status{namespace="kubevirt",pod="virt-handler-2"} 1
up{job="again",namespace="kubevirt",pod="virt-api-1"} 1
up{job="again",namespace="kubevirt",pod="virt-api-2"} 1
up{job="again",namespace="kubevirt",pod="virt-controller-1"} 1
up{job="again",namespace="kubevirt",pod="virt-controller-2"} 1
up{job="again",namespace="kubevirt",pod="virt-handler-1"} 1
up{job="again",namespace="kubevirt",pod="virt-handler-2"} 1
kubevirt_virt_api_ready_status{job="again",namespace="kubevirt",pod="virt-api-1"} 1
kubevirt_virt_api_ready_status{job="again",namespace="kubevirt",pod="virt-api-2"} 1
kubevirt_virt_controller_ready_status{job="again",namespace="kubevirt",pod="virt-controller-1"} 1
kubevirt_virt_controller_ready_status{job="again",namespace="kubevirt",pod="virt-controller-2"} 1
kubevirt_virt_handler_ready_status{job="again",namespace="kubevirt",pod="virt-handler-1"} 1
kubevirt_virt_handler_ready_status{job="again",namespace="kubevirt",pod="virt-handler-2"} 1
drydock_node_ready_status{node="node1",pod="virt-handler-1"} 1
drydock_node_ready_status{node="node2",pod="virt-handler-2"} 1
kubevirt_rest_client_requests_total{namespace="kubevirt",pod="virt-api-1",code="200"} +3
kubevirt_rest_client_requests_total{namespace="kubevirt",pod="virt-api-1",code="404"} +1
kubevirt_rest_client_requests_total{namespace="kubevirt",pod="virt-controller-1",code="200"} +3
kubevirt_rest_client_requests_total{namespace="kubevirt",pod="virt-controller-1",code="409"} +1
kubevirt_rest_client_requests_total{namespace="kubevirt",pod="virt-handler-1",code="200"} +3
kubevirt_rest_client_requests_total{namespace="kubevirt",pod="virt-handler-1",code="<error>"} +1
kubevirt_configuration_emulation_enabled{pod="virt-controller-1"} 0
drydock_nodes{pod="virt-controller-1"} 3
drydock_nodes_schedulable{pod="virt-controller-1"} 2
drydock_nodes_with_kvm{pod="virt-controller-1"} 2
drydock_component_pods_desired{component="virt-api",pod="virt-controller-1"} 2
drydock_component_pods_desired{component="virt-controller",pod="virt-controller-1"} 2
drydock_component_pods_desired{component="virt-handler",pod="virt-controller-1"} 2
drydock_component_pods_ready{component="virt-api",pod="virt-controller-1"} 2
drydock_component_pods_ready{component="virt-controller",pod="virt-controller-1"} 2
drydock_component_pods_ready{component="virt-handler",pod="virt-controller-1"} 2
drydock_launcher_pods{phase="failed",pod="virt-controller-1"} 7
drydock_launcher_pods{phase="running",pod="virt-controller-1"} 300
drydock_certificate_expiry_timestamp_seconds{secret="kubevirt-virt-api-certs",part="authority",pod="virt-api-1"} 9000000
drydock_certificate_renewal_timestamp_seconds{secret="kubevirt-virt-api-certs",part="authority",pod="virt-api-1"} 8000000
drydock_node_certificate_expiry_timestamp_seconds{node="node1",pod="virt-handler-1"} 900000
drydock_node_certificate_renewal_timestamp_seconds{node="node1",pod="virt-handler-1"} 500000
kubevirt_vmi_number_of_outdated{pod="virt-controller-1"} 0
kubevirt_vmi_phase_count{node="node1",phase="running"} 1
kubevirt_vmi_phase_count{node="node2",phase="running"} 1
kubevirt_vmi_phase_count{node="",phase="pending"} 1
kubevirt_vmi_phase_count{node="node3",phase="succeeded"} 1
kubevirt_vm_info{namespace="shop",name="web",status="running",status_group="running"} 1
kubevirt_vm_info{namespace="shop",name="till",status="paused",status_group="non_running"} 1
kubevirt_vm_info{namespace="shop",name="off",status="stopped",status_group="non_running"} 1
kubevirt_vmi_info{namespace="shop",name="web",node="node1",phase="running"} 1
kubevirt_vmi_info{namespace="shop",name="till",node="node2",phase="running"} 1
kubevirt_vmi_non_evictable{namespace="shop",name="web",node="node1"} 0
kubevirt_vmi_migration_succeeded{namespace="shop",vmi="web",vmim="once"} 1
kubevirt_vmi_guest_vcpu_queue{namespace="shop",name="web",node="node1"} 3
kubevirt_vmi_memory_available_bytes{namespace="shop",name="web",node="node1"} 1000
kubevirt_vmi_memory_usable_bytes{namespace="shop",name="web",node="node1"} 400
kubevirt_vmi_memory_pgmajfault_total{namespace="shop",name="web",node="node1"} +20
kubevirt_vmi_memory_swap_in_traffic_bytes{namespace="shop",name="web",node="node1"} +5000000
kubevirt_vmi_memory_swap_out_traffic_bytes{namespace="shop",name="web",node="node1"} +5000000
kubevirt_vmi_filesystem_capacity_bytes{namespace="shop",name="web",node="node1",disk_name="vda1",mount_point="/",file_system_type="ext4"} 100
kubevirt_vmi_filesystem_used_bytes{namespace="shop",name="web",node="node1",disk_name="vda1",mount_point="/",file_system_type="ext4"} 80
kubevirt_vmi_filesystem_capacity_bytes{namespace="shop",name="web",node="node1",disk_name="sr0",mount_point="/media",file_system_type="iso9660"} 100
kubevirt_vmi_filesystem_used_bytes{namespace="shop",name="web",node="node1",disk_name="sr0",mount_point="/media",file_system_type="iso9660"} 100
kubevirt_vmi_guest_os_panic_total{namespace="shop",name="web",type="unknown"} 2
drydock_vmi_stopped{namespace="shop",name="till",node="node2",reason="PausedByUser"} 1
apiserver_request_total{group="kubevirt.io",version="v1",resource="virtualmachines",verb="POST"} +1
apiserver_request_total{group="kubevirt.io",version="v1alpha3",resource="virtualmachines",verb="LIST"} +1
apiserver_request_total{group="kubevirt.io",version="v1alpha3",resource="virtualmachines",verb="POST"} 4
apiserver_request_total{group="kubevirt.io",version="v1alpha3",resource="virtualmachines",verb="POST",instance="another"} 4
apiserver_requested_deprecated_apis{group="kubevirt.io",version="v1alpha3",resource="virtualmachines"} 1
`

func healthyState(t *testing.T) state {
	t.Helper()
	s := state{}
	if err := s.change(healthy); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAHealthyClusterHasNoAlerts(t *testing.T) {
	p := newPrometheus(t, time.Minute)
	p.run(healthyState(t), 2*time.Hour, func() {
		if names := p.names(); len(names) > 0 || len(p.active) > 0 {
			t.Fatalf("after %s there are the alerts %q, and active are %v", p.now.Sub(time.Unix(0, 0)), names, p.active)
		}
	})
}

// wave has the series of two of twenty pods of virt-handler. Each has the number of its node, or that of the pod before it plus 20.
func wave(n int, up, ready string) string {
	lines := ""
	for _, i := range []int{2 * n, 2*n + 1} {
		pod := fmt.Sprintf(`pod="virt-handler-of%d"`, i)
		lines += fmt.Sprintf("up{namespace=\"kubevirt\",%[1]s} %[2]s\nkubevirt_virt_handler_ready_status{namespace=\"kubevirt\",%[1]s} %[3]s\n"+
			"drydock_node_ready_status{node=\"of%[4]d\",%[1]s} %[3]s\n", pod, up, ready, i%20)
	}
	return lines
}

// In an update of twenty nodes, two pods are not ready at any time, each for 90 seconds.
func TestAnUpdateHasNoAlerts(t *testing.T) {
	p, s := newPrometheus(t, 30*time.Second), healthyState(t)
	change := func(lines string) {
		t.Helper()
		if err := s.change(lines); err != nil {
			t.Fatal(err)
		}
	}
	nodes := "drydock_component_pods_desired{component=\"virt-handler\",pod=\"virt-controller-1\"} 22\ndrydock_component_pods_ready{component=\"virt-handler\",pod=\"virt-controller-1\"} "
	for i := range 20 {
		nodes = fmt.Sprintf("kubevirt_vmi_phase_count{node=\"of%d\",phase=\"running\"} 1\n", i) + nodes
	}
	for n := range 10 {
		change(wave(n, "1", "1"))
	}
	change(nodes + "22")
	check := func() {
		if names := p.names(); len(names) > 0 {
			t.Fatalf("after %s there are the alerts %q", p.now.Sub(time.Unix(0, 0)), names)
		}
	}
	p.run(s, 20*time.Minute, check)
	change(nodes + "20")
	for n := 10; n < 30; n++ { // two updates
		change(wave(n-10, "gone", "gone") + wave(n, "1", "0"))
		p.run(s, 90*time.Second, check)
		change(wave(n, "1", "1"))
	}
	change(nodes + "22")
	p.run(s, 20*time.Minute, check)
}

// A cluster that nobody has told Prometheus about, or that is not served yet, has alerts about pods only.
func TestWithoutAnythingOnlyPodsAreMissed(t *testing.T) {
	p := newPrometheus(t, time.Minute)
	p.run(state{}, time.Hour, func() {})
	want := []string{"NoReadyVirtAPI/critical", "NoReadyVirtController/critical", "NoReadyVirtHandler/critical",
		"VirtAPIDown/critical", "VirtControllerDown/critical", "VirtHandlerDown/critical"}
	if got := p.names(); !slices.Equal(got, want) {
		t.Errorf("firing are %q, want %q", got, want)
	}
}

// Times of the test: how long a cluster is healthy before its fault, which is as far as most alerts look back, how long the fault
// lasts beyond the alerts' own times, and how long the cluster is watched after the repair.
const (
	before = 32 * time.Minute
	beyond = 10 * time.Minute
	since  = 14 * time.Minute
	step   = 2 * time.Minute
)

func TestEachAlertFiresForItsFaultAndForNothingElse(t *testing.T) {
	past, was := newPrometheus(t, step), healthyState(t)
	past.run(was, before, func() {})
	if len(past.active) > 0 {
		t.Fatalf("before any fault %v are active", past.active)
	}
	fired := set{}
	for _, fault := range faults {
		fired = fired.and(of(fault.alerts...))
		t.Run(fault.name, func(t *testing.T) {
			p, s := past.clone(t), was.clone()
			p.step = max(fault.step, step)
			fault.fires(p, s)
			if !t.Failed() && !fault.lasting {
				fault.ends(p, s, was.clone())
			}
		})
	}
	for _, a := range ruletable.Alerts() {
		if name := a.Name + "/" + string(a.Severity); !fired[name] {
			t.Errorf("no fault fires the alert %s", name)
		}
	}
}

// fires lets the fault happen, and compares the alerts and their times.
func (f *fault) fires(p *prometheus, s state) {
	p.t.Helper()
	first := f.happens(p, s)
	if got := p.names(); !slices.Equal(got, f.alerts) {
		p.t.Errorf("firing are %q, want %q; they began after %v", got, f.alerts, first)
	}
	for name, at := range first {
		if !slices.Contains(f.alerts, name) {
			p.t.Errorf("%s fires %s after the fault for a while", name, at)
		}
	}
	for _, a := range ruletable.Alerts() {
		if at, fires := first[a.Name+"/"+string(a.Severity)]; fires && at < a.For {
			p.t.Errorf("%s fires %s after the fault, and should wait %s", a.Name, at, a.For)
		}
	}
}

// happens lets the fault last, and returns when each alert fired first.
func (f *fault) happens(p *prometheus, s state) map[string]time.Duration {
	p.t.Helper()
	change := func(lines string) {
		if err := s.change(lines); err != nil {
			p.t.Fatal(err)
		}
	}
	change(f.change)
	begin, first, turn := p.now, map[string]time.Duration{}, 0
	p.run(s, f.after(), func() {
		for _, name := range p.names() {
			if _, known := first[name]; !known {
				first[name] = p.now.Sub(begin)
			}
		}
		if len(f.turns) > 0 {
			change(f.turns[turn%len(f.turns)])
			turn++
		}
	})
	return first
}

// ends repairs the fault and waits until no alert fires.
func (f *fault) ends(p *prometheus, s, repaired state) {
	p.t.Helper()
	for key, g := range repaired {
		if s[key] != nil && g.each > 0 {
			g.value = s[key].value // counters do not go back
		}
	}
	p.run(repaired, since+2*p.step, func() {})
	if got := p.names(); len(got) > 0 {
		p.t.Errorf("after the repair %q fire", got)
	}
}
