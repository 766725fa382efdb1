//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
	migrationsv1 "kubevirt.io/api/migrations/v1alpha1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/metrictable"
	"drydock.dev/drydock/internal/rules/vm/commontypes"
	"drydock.dev/drydock/internal/ruletable"
	virtclient "drydock.dev/drydock/internal/virtctl/client"
)

// watched are the guests of TestPrometheusSeesTheCluster.
type watched struct {
	*monitoringStack
	t  *testing.T
	ns string
	// busy does work and migrates, full has a disk whose storage is filled.
	busy, full *guest
	bootID     string // of busy
}

// TestPrometheusSeesTheCluster lets a real Prometheus scrape the pods as docs/observability.md says, evaluate the shipped
// rules, and answer the queries of the shipped dashboards; a real Alertmanager says which alerts begin and end. test/monitoring
// has every alert and the expressions; only here the series are those of real guests, and the faults are faults. It runs
// alone, because it kills virt-handler and stops a kubelet.
func TestPrometheusSeesTheCluster(t *testing.T) {
	onlyInTestAll(t)
	// These need not wait as long as in the shipped rules. Their expressions are the shipped ones.
	s := startMonitoring(t, []string{"DrydockDiskNotWritable", "DrydockNodeSilentWithGuests", "LowReadyVirtHandlerCount", "OrphanedVirtualMachineInstances"})
	w := &watched{monitoringStack: s, t: t, ns: newNamespace(t)}
	warnsOfNothing(t, w.ns, "IOerror", "NodeNotReady")
	inTurn(t,
		chapter{"every pod is scraped, with a token", w.podsAreScraped},
		chapter{"every rule is evaluated", w.rulesAreEvaluated},
		chapter{"guests work", w.guestsWork},
		chapter{"every metric has a plausible value", w.metricsArePlausible},
		chapter{"every query of a dashboard is answered", w.dashboardsAreAnswered},
		chapter{"the dashboards of kubevirt/monitoring find their metrics", w.kubeVirtsDashboardsAreAnswered},
		chapter{"certificates end, by a clock", w.certificatesEnd},
		chapter{"nothing is wrong", w.noAlertFires},
		chapter{"a guest whose disk can't be written", w.diskIsFull},
		chapter{"virt-handler is killed", w.handlerIsKilled},
		chapter{"a node goes silent", w.nodeIsSilent},
		chapter{"every alert has ended", w.alertsEnd},
	)
}

func (s *monitoringStack) podsAreScraped(t *testing.T) {
	eventually(t, "Prometheus to scrape all pods", func(ctx context.Context) error {
		targets, err := s.targets(ctx)
		if err != nil {
			return err
		}
		of := map[string]int{}
		for _, target := range targets["kubevirt"] {
			if target.Health != "up" {
				return fmt.Errorf("%s: %s %s", target.Labels["pod"], target.Health, target.LastError)
			}
			of[regexp.MustCompile("^virt-[a-z]+").FindString(target.Labels["pod"])]++
		}
		if of["virt-api"] < 1 || of["virt-controller"] < 1 || of["virt-handler"] != 2 {
			return fmt.Errorf("the targets are %v", of)
		}
		if len(targets["stranger"]) != len(targets["kubevirt"]) {
			return fmt.Errorf("without a token there are %d targets, with one %d", len(targets["stranger"]), len(targets["kubevirt"]))
		}
		for _, target := range targets["stranger"] {
			if target.Health != "down" || !strings.Contains(target.LastError, "401") {
				return fmt.Errorf("without a token %s is %s: %s", target.Labels["pod"], target.Health, target.LastError)
			}
		}
		return nil
	})
}

func (s *monitoringStack) rulesAreEvaluated(t *testing.T) {
	eventually(t, "the evaluation of all rules", func(ctx context.Context) error {
		var data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
		if err := s.ask(ctx, "rules", nil, &data); err != nil {
			return err
		}
		rules := 0
		for _, group := range data.Groups {
			for _, rule := range group.Rules {
				if rules++; rule.Health != "ok" {
					return fmt.Errorf("the rule %s is %s: %s", rule.Name, rule.Health, rule.LastError)
				}
			}
		}
		if rules < 50 {
			return fmt.Errorf("there are only %d rules", rules)
		}
		return nil
	})
}

// guestsWork boots the guests. One writes and reads a disk and sends packets, is snapshotted, and migrates slowly.
func (w *watched) guestsWork(*testing.T) {
	t := w.t // the guests outlive this chapter
	vm := newMigratableVM(t, w.ns, "busy")
	vm.Spec.Template.ObjectMeta.Annotations = map[string]string{commontypes.OSAnnotation: "linux", commontypes.FlavorAnnotation: "tiny"}
	spec := &vm.Spec.Template.Spec
	spec.EvictionStrategy = new(v1.EvictionStrategyLiveMigrate)
	spec.Domain.Resources = v1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}, Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
	}
	data := claimOfClass(w.ns, "data", classShared, corev1.PersistentVolumeBlock)
	data.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	create(t, data)
	onClaim := func(name string) v1.VolumeSource {
		return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
	}
	added := v1.Disk{Name: "data", Serial: "DATA", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}}
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, added)
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: "data", VolumeSource: onClaim("data")})
	w.busy = bootVM(t, vm)

	full := newVMI(w.ns, "full")
	create(t, claimOfClass(w.ns, "filled", classLocal, corev1.PersistentVolumeFilesystem))
	addDisk(full, added, onClaim("filled"))
	w.full = bootVM(t, newVM(full, v1.RunStrategyAlways))

	disk := w.busy.device("DATA")
	w.busy.run("mkfs.ext4 -q -F -b 1024 " + disk + " && mkdir -p /mnt/data && mount -t ext4 " + disk + " /mnt/data")
	w.busy.run("dd if=/dev/urandom of=/mnt/data/file bs=1M count=2 conv=fsync 2>/dev/null; sync; echo 3 >/proc/sys/vm/drop_caches; cat /mnt/data/file >/dev/null")
	w.busy.run("until ip -o -4 addr show dev eth0 scope global | grep -q inet; do sleep 0.1; done; ping -c 5 $(ip route | sed -n 's/^default via \\([0-9.]*\\).*/\\1/p') >/dev/null")
	snapshotOf(t, w.ns, "busy", "snap", func(s *snapshotv1.VirtualMachineSnapshotStatus) bool { return s.ReadyToUse != nil && *s.ReadyToUse })
	w.busy.run("dd if=/dev/urandom of=/run/memory bs=1M count=40 2>/dev/null")
	limit(t, w.ns, "busy", migrationsv1.MigrationPolicySpec{BandwidthPerMigration: resource.NewQuantity(slowMiB<<20, resource.BinarySI)})
	migrated(t, w.ns, "busy")
	w.busy = login(t, w.ns, "busy")
	w.bootID = w.busy.bootID()
	// A guest that uses all of its memory and changes some of it all the time has a dirty rate.
	w.busy.run("dd if=/dev/urandom of=/run/churn bs=1M count=20 2>/dev/null; cat /mnt/data/file >/dev/null")
	w.busy.run("(while true; do dd if=/dev/urandom of=/run/churn bs=64k count=320 conv=notrunc; done) >/dev/null 2>&1 &")
	w.busy.run("nc -l -p 7777 </dev/null >/dev/null 2>&1 &")
	w.isViewed("vnc")
	w.isViewed("portforward/7777/tcp")
}

// isViewed keeps a connection to the busy guest open until the test ends.
func (w *watched) isViewed(verb string) {
	w.t.Helper()
	c, err := virtclient.New(cluster.config)
	if err != nil {
		w.t.Fatal(err)
	}
	eventually(w.t, verb+" of the guest", func(ctx context.Context) error {
		conn, err := c.Stream(ctx, virtclient.Ref{Resource: virtclient.VirtualMachineInstances, Namespace: w.ns, Name: "busy"}, verb)
		if err == nil {
			w.t.Cleanup(func() { _ = conn.Close() })
		}
		return err
	})
}

// metricsArePlausible compares each metric of the table with its range.
func (w *watched) metricsArePlausible(t *testing.T) {
	for _, m := range metrictable.Served() {
		if _, known := figures[m.Name]; !known {
			t.Errorf("%s is in no table of this test: enter its range, or why it has none", m.Name)
		}
	}
	for name := range figures {
		if !slices.ContainsFunc(metrictable.Served(), func(m metrictable.Metric) bool { return m.Name == name }) {
			t.Errorf("the table of this test has %s, which is not served", name)
		}
	}
	eventually(t, "plausible figures", func(ctx context.Context) error {
		var wrong []error
		for _, m := range metrictable.Served() {
			if want, known := figures[m.Name]; known && want.absent == "" {
				wrong = append(wrong, w.isPlausible(ctx, m, want))
			}
		}
		return errors.Join(wrong...)
	})
}

func (w *watched) isPlausible(ctx context.Context, m metrictable.Metric, want figure) error {
	name := m.Name
	if m.Type == metrictable.Histogram {
		name += "_count"
	}
	if slices.Contains(m.Labels, "namespace") {
		name += fmt.Sprintf("{namespace=%q}", w.ns)
	}
	// What is only for a moment counts, too.
	values, err := w.query(ctx, fmt.Sprintf("max_over_time(%s[1h])", name))
	if err != nil {
		return err
	}
	least, most := want.within(w.began)
	largest := math.Inf(-1)
	for _, v := range values {
		n := v.number()
		if largest = max(largest, n); n < min(least, want.others) || n > most || math.IsNaN(n) {
			return fmt.Errorf("%v is %v, want %v to %v", v.Metric, n, least, most)
		}
		for _, label := range m.Labels {
			if _, has := v.Metric[label]; !has && !want.unlabeled[label] {
				return fmt.Errorf("%v has no label %s", v.Metric, label)
			}
		}
	}
	if largest < least {
		return fmt.Errorf("%s: of %d series the largest is %v, want at least %v", name, len(values), largest, least)
	}
	return nil
}

// ofFaults are queries of dashboards that have values only while something is wrong.
var ofFaults = regexp.MustCompile(`^(drydock_node_ready_status == 0|max by \(node\) \(drydock_node_silent_guests\)|drydock_vmi_stopped\{.*\}` +
	`|kubevirt_vmi_non_evictable\{.*\} == 1|kubevirt_vmi_migration_failed\{.*\})$`)

// dashboardsAreAnswered asks for each panel with the values that Grafana's variables would have.
func (w *watched) dashboardsAreAnswered(t *testing.T) {
	files, err := filepath.Glob("../../config/monitoring/dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no dashboards: %v", err)
	}
	empty, all := []string{}, 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var page struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(text, &page); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, panel := range page.Panels {
			for _, target := range panel.Targets {
				all++
				expr := strings.NewReplacer("$namespace", w.ns, "$name", "busy", "$component", "virt-(api|controller|handler)", "$__rate_interval", "5m").Replace(target.Expr)
				values, err := w.query(t.Context(), expr)
				if err != nil || strings.Contains(expr, "$") {
					t.Errorf("%s, %q: %s: %v", filepath.Base(file), panel.Title, expr, err)
				}
				if len(values) > 0 || ofFaults.MatchString(expr) {
					continue
				}
				before, err := w.query(t.Context(), "last_over_time(("+expr+")[1h:5s])")
				if empty = append(empty, expr); err != nil || len(before) == 0 {
					t.Errorf("%s, %q: %s has never had a value: %v", filepath.Base(file), panel.Title, expr, err)
				}
			}
		}
	}
	if t.Logf("figure dashboards: %d queries, %d without a value now, but with one before: %q", all, len(empty), empty); all < 100 {
		t.Errorf("there are only %d queries", all)
	}
}

// kubeVirtsDashboardsAreAnswered asks for the metrics by the labels and the name of the job with which those dashboards select them.
func (w *watched) kubeVirtsDashboardsAreAnswered(t *testing.T) {
	text, err := os.ReadFile("../monitoring/testdata/kubevirt-monitoring.txt")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the metrics of KubeVirt's dashboards", func(ctx context.Context) error {
		var missing []error
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); fields[0] != "#" {
				missing = append(missing, w.finds(ctx, fields[1], fields[2:]))
			}
		}
		return errors.Join(missing...)
	})
}

// finds asks for a metric of Drydock's job, or of a recording rule, which has none.
func (w *watched) finds(ctx context.Context, metric string, labels []string) error {
	values, err := w.query(ctx, fmt.Sprintf(`count by (%s) ({__name__=%q, job=~"(.*kubevirt.*)?"})`, strings.Join(labels, ", "), metric))
	if err == nil && len(values) == 0 {
		err = fmt.Errorf("there is no series of %s", metric)
	}
	if err != nil {
		return err
	}
	for _, label := range labels {
		if !slices.ContainsFunc(values, func(v value) bool { return v.Metric[label] != "" }) {
			return fmt.Errorf("no series of %s has the label %s", metric, label)
		}
	}
	return nil
}

// certificatesEnd asks for the alert with the present series of the real certificates at later times: no certificate may end
// sooner than after 40 minutes.
func (w *watched) certificatesEnd(t *testing.T) {
	metric := regexp.MustCompile("drydock_[a-z_]+_seconds")
	clocks := 0
	for _, a := range ruletable.Alerts() {
		if a.Name != "DrydockCertificateNearEnd" {
			continue
		}
		expr := metric.ReplaceAllString(a.Expr, fmt.Sprintf("$0 @ %d", time.Now().Unix()))
		ends, err := w.query(t.Context(), metric.FindString(a.Expr))
		if err != nil || len(ends) == 0 {
			t.Fatalf("no certificate is known: %v", err)
		}
		for _, end := range ends {
			clocks++
			fires := func(at float64) bool {
				found, err := w.queryAt(t.Context(), expr, at)
				if err != nil {
					t.Fatal(err)
				}
				return slices.ContainsFunc(found, func(v value) bool {
					return v.Metric["pod"] == end.Metric["pod"] && v.Metric["secret"] == end.Metric["secret"] && v.Metric["part"] == end.Metric["part"]
				})
			}
			if now, before := fires(float64(time.Now().Unix())), fires(end.number()-60); now || !before {
				t.Errorf("of %v the alert fires now: %v, a minute before its end: %v", end.Metric, now, before)
			}
		}
	}
	if clocks < 3 {
		t.Errorf("only %d certificates are watched", clocks)
	}
}

func (w *watched) noAlertFires(t *testing.T) {
	if sent := w.alerts.list(); len(sent) > 0 {
		t.Errorf("without a fault Alertmanager has sent %v", sent)
	}
}

// diskIsFull fills the file system in which the disk's image is.
func (w *watched) diskIsFull(t *testing.T) {
	vmi := awaitRunning(t, w.ns, "full")
	folders := fmt.Sprintf("/proc/%d/root/var/lib/kubelet/pods/%s/volumes/kubernetes.io~csi/*/mount", kubeletOf(t, vmi.Status.NodeName), launcherPod(t, vmi).UID)
	volumes, err := filepath.Glob(folders)
	if err != nil || len(volumes) != 1 {
		t.Fatalf("%s are the volumes %v (%v)", folders, volumes, err)
	}
	filler := filepath.Join(volumes[0], "filler")
	if err := fillFileSystem(filler); err != nil {
		t.Fatal(err)
	}
	w.full.tell("dd if=/dev/urandom of=" + w.full.device("DATA") + " bs=64k conv=fsync; echo written-$((40+8))")
	alert := map[string]string{"alertname": "DrydockDiskNotWritable", "namespace": w.ns, "name": "full", "vm": "full", "severity": "critical"}
	w.alerts.await(t, "firing", alert)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	w.full.expect("written-48")
}

// fillFileSystem writes to a file until its file system is full.
func fillFileSystem(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for block := make([]byte, 1<<20); ; {
		switch n, err := file.Write(block); {
		case errors.Is(err, syscall.ENOSPC) && len(block) == 1:
			return nil
		case errors.Is(err, syscall.ENOSPC):
			block = block[:max(1, len(block)/2)]
		case err != nil:
			return fmt.Errorf("filling a file system (%d bytes): %w", n, err)
		}
	}
}

// handlerIsKilled keeps virt-handler dead on the node of a guest, which runs on.
func (w *watched) handlerIsKilled(t *testing.T) {
	node := awaitRunning(t, w.ns, "busy").Status.NodeName
	pod := handlerPod(t, node)
	revive := keepDead(t, string(pod.UID))
	w.alerts.await(t, "firing", map[string]string{"alertname": "LowReadyVirtHandlerCount", "pod": pod.Name})
	w.alerts.await(t, "firing", map[string]string{"alertname": "OrphanedVirtualMachineInstances", "node": node})
	revive()
}

// nodeIsSilent stops the kubelet of the node of a guest, which runs on.
func (w *watched) nodeIsSilent(t *testing.T) {
	node := awaitRunning(t, w.ns, "full").Status.NodeName
	thaw := freeze(t, kubeletOf(t, node))
	w.alerts.await(t, "firing", map[string]string{"alertname": "DrydockNodeSilentWithGuests", "node": node})
	thaw()
}

func (w *watched) alertsEnd(t *testing.T) {
	w.allEnd(t)
	// The console of before has ended with virt-handler.
	if login(t, w.ns, "busy").bootID() != w.bootID {
		t.Error("the guest was started again")
	}
}
