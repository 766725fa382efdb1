package report

import (
	"fmt"
	"strings"
)

type target struct {
	// A number of VMs follows a final underscore.
	name string
	most float64
}

// targets are the targets of the figures. Those of comparisons are differences and ratios, so that
// they hold on any machine.
var targets = []target{
	{"start.vmi_running_minus_pod_s", 0.5},
	{"start.vmi_guest_minus_qemu_and_pod_s", 0.3},
	{"api.writes_per_vmi_life", 8},
	{"api.idle_writes_per_vmi_per_min", 0},
	{"idle.guest_cpu_percent", 2},
	{"memory.beside_qemu_mib", 15},
	{"memory.requested_over_used", 1.2},
	{"memory.overhead_requested_over_used", 1.2},
	{"hotplug.add_ratio", 1.3},
	{"migrate.total_minus_qemu_s", 1.2},
	{"migrate.total_minus_qemu_and_pod_s", 0.5},
	{"migrate.downtime_ms", 100},
	{"migrate.downtime_ratio", 1.5},
	{"migrate.at_once_ratio", 1.5},
	{"snapshot.writes", 12},
	{"snapshot.frozen.writes", 12},
	{"snapshot.frozen.held_minus_cut_s", 0.2},
	{"snapshot.stopped.writes", 12},
	{"snapshot.stopped.held_minus_cut_s", 0.2},
	{"maintenance.running_minus_pod_s", 0.3},
	{"import.ratio", 1.2},
	{"import.peak_mib", 128},
	{"import.refetched_percent", 5},
	{"scale.cpu_ms_per_vmi_1000", 5},
	{"scale.cost_5000_over_500", 1.2},
	{"scale.restart_ready_s_5000", 20},
	{"scale.restart_writes_", 0},
	// With fewer VMIs virt-controller's own warm-up dominates.
	{"scale.rss_kib_per_vmi_1000", 40},
	{"scale.rss_kib_per_vmi_5000", 40},
}

func verdict(name string, median float64) string {
	for _, t := range targets {
		if name != t.name && (!strings.HasSuffix(t.name, "_") || !strings.HasPrefix(name, t.name)) {
			continue
		}
		word := "holds"
		if median > t.most {
			word = "MISSED"
		}
		return fmt.Sprintf("<= %g %s", t.most, word)
	}
	return ""
}
