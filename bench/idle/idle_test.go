package idle

import (
	"io"
	"testing"
	"time"

	"drydock.dev/drydock/bench/audit"
	"drydock.dev/drydock/bench/report"
)

func figures(r *report.Report) map[string]float64 {
	out := map[string]float64{}
	for name, m := range r.Metrics() {
		out[name] = m.Median
	}
	return out
}

func TestWritesCountForTheVMIsForDrydockAndForTheRestOfTheCluster(t *testing.T) {
	request := func(component, verb, resource, namespace string) audit.Request {
		drydock := component == "handler" || component == "controller"
		return audit.Request{Component: component, Drydock: drydock, Verb: verb, Resource: resource, Namespace: namespace}
	}
	all := []audit.Request{
		request("kubelet", "patch", "events", "ns"),
		request("kubelet", "patch", "events", "ns"),
		request("kubelet", "patch", "events", "ns"),
		request("handler", "patch", "virtualmachineinstances", "ns"),
		request("handler", "get", "virtualmachineinstances", "ns"),
		request("kube-system:service-account-controller", "create", "serviceaccounts", "ns"), // about the namespace, not the VMIs
		request("kubelet", "patch", "nodes/status", ""),
		request("kubelet", "update", "leases", "kube-node-lease"),
		request("controller", "update", "leases", "kubevirt"),
	}
	r := report.New(io.Discard)
	o := Options{vmis: 2}
	o.addRequests(r, "ns", all, 30*time.Minute)
	got := figures(r)
	for name, want := range map[string]float64{
		"api.idle_writes_all_per_vmi_per_hour": 4,
		"api.idle_writes_cluster_per_hour":     2,
		"api.idle_leases_cluster_per_hour":     4,
		"api.idle_writes_per_vmi_per_min":      0.017, // one in sixty minutes of VMIs
		"api.idle_reads_per_vmi_per_min":       0.017,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

func TestCPUTimeIsAShareOfACoreForEachVMI(t *testing.T) {
	before := spent{
		qemu:     map[string]time.Duration{"a": time.Second, "b": 0},
		launcher: map[string]time.Duration{"a": 0, "b": 0},
		handlers: 10 * time.Second,
	}
	after := spent{
		qemu:     map[string]time.Duration{"a": 3 * time.Second, "b": 2 * time.Second},
		launcher: map[string]time.Duration{"a": 100 * time.Millisecond, "b": 100 * time.Millisecond},
		handlers: 13 * time.Second,
	}
	r := report.New(io.Discard)
	o := Options{vmis: 2}
	if err := o.addCPU(r, before, after, 100*time.Second, 1); err != nil {
		t.Fatal(err)
	}
	got := figures(r)
	for name, want := range map[string]float64{
		"idle.guest_cpu_percent":           2,
		"idle.launcher_cpu_percent":        0.1,
		"idle.handlers_cpu_percent":        1,
		"idle.handler_cpu_percent_per_vmi": 1, // 3 % with two VMIs, 1 % without
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	after.qemu["c"] = time.Second
	if err := o.addCPU(r, before, after, time.Second, 0); err == nil {
		t.Error("a pod that came while the VMIs were looked at was counted")
	}
}
