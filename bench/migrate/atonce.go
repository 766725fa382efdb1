package migrate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/report"
)

// The total time is compared with the time that sending the guests' data takes at the bandwidth of each.
func (o *Options) measureAtOnce(ctx context.Context, c *cluster.Cluster, r *report.Report) (err error) {
	ns, remove, err := c.NewNamespace(ctx)
	if err != nil {
		return err
	}
	defer remove()
	restore, err := o.allow(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()
	var names []string
	for i := range o.atOnce {
		name := guestName + "-" + strconv.Itoa(i)
		if err := boot(ctx, c, ns, name, disk+"-"+name); err != nil {
			return err
		}
		if err := awaitMigratable(ctx, c, ns, name); err != nil {
			return err
		}
		names = append(names, name)
	}
	before, err := readFigures(ctx, c)
	if err != nil {
		return err
	}
	took, err := migrateAll(ctx, c, ns, names)
	if err != nil {
		return err
	}
	sum, err := awaitFigures(ctx, c, before, len(names))
	if err != nil {
		return err
	}
	// The migrations must have had the option's bandwidth.
	var vmis v1.VirtualMachineInstanceList
	if err := c.Client.List(ctx, &vmis, client.InNamespace(ns)); err != nil {
		return fmt.Errorf("listing VMIs: %w", err)
	}
	for i := range vmis.Items {
		m := vmis.Items[i].Status.MigrationState
		if m == nil || m.VMIMConfigurationOptions == nil || m.VMIMConfigurationOptions.BandwidthPerMigration == nil ||
			m.VMIMConfigurationOptions.BandwidthPerMigration.Value() != int64(o.bandwidth)*mib {
			return fmt.Errorf("VMI %s has migrated without the bandwidth's limit: %+v", vmis.Items[i].Name, m)
		}
	}
	count := float64(len(names))
	allowed := sum.sent / (count * float64(o.bandwidth) * mib)
	r.Add("migrate.at_once_s", "s", took.Seconds())
	r.Add("migrate.at_once_ratio", "ratio", took.Seconds()/allowed)
	r.Add("migrate.at_once_downtime_ms", "ms", sum.downtime/count*inMs)
	r.Logf("%d guests at once: %.1f s, and %.1f s is what sending %.0f MiB takes; %.0f ms still on average",
		len(names), took.Seconds(), allowed, sum.sent/mib, sum.downtime/count*inMs)
	return nil
}

// allow permits all guests to migrate at the same time, with the bandwidth. The returned function
// restores the configuration.
func (o *Options) allow(ctx context.Context, c *cluster.Cluster) (func() error, error) {
	var list v1.KubeVirtList
	if err := c.Client.List(ctx, &list, client.InNamespace(cluster.Namespace)); err != nil {
		return nil, fmt.Errorf("reading the cluster's configuration: %w", err)
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("reading the cluster's configuration: there are %d KubeVirts", len(list.Items))
	}
	kv := &list.Items[0]
	before := kv.Spec.Configuration.MigrationConfiguration
	set := func(ctx context.Context, m *v1.MigrationConfiguration) error {
		from := kv.DeepCopy()
		kv.Spec.Configuration.MigrationConfiguration = m
		if err := c.Client.Patch(ctx, kv, client.MergeFrom(from)); err != nil {
			return fmt.Errorf("changing the limits of migrations: %w", err)
		}
		return nil
	}
	err := set(ctx, &v1.MigrationConfiguration{
		ParallelMigrationsPerCluster: new(uint32(o.atOnce)), ParallelOutboundMigrationsPerNode: new(uint32(o.atOnce)),
		BandwidthPerMigration: resource.NewQuantity(int64(o.bandwidth)*mib, resource.BinarySI),
	})
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cluster.Patience)
		defer cancel()
		return set(ctx, before)
	}, err
}

func migrateAll(ctx context.Context, c *cluster.Cluster, ns string, names []string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*cluster.Patience)
	defer cancel()
	left, failure := map[string]bool{}, ""
	for _, name := range names {
		left[name] = true
	}
	done, err := c.Watch(ctx, &v1.VirtualMachineInstanceMigrationList{}, ns, nil, func(_ watch.EventType, o client.Object) bool {
		m, ok := o.(*v1.VirtualMachineInstanceMigration)
		if !ok || !m.IsFinal() {
			return false
		}
		if m.Status.Phase != v1.MigrationSucceeded {
			failure = fmt.Sprintf("%s is %s: %+v", m.Name, m.Status.Phase, m.Status.MigrationState)
		}
		delete(left, m.Name)
		return len(left) == 0 || failure != ""
	})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	for _, name := range names {
		if err := c.Client.Create(ctx, newMigration(ns, name, name)); err != nil {
			return 0, fmt.Errorf("creating a migration: %w", err)
		}
	}
	err = <-done
	if err == nil && failure != "" {
		err = errors.New(failure)
	}
	return time.Since(began), err
}

func awaitFigures(ctx context.Context, c *cluster.Cluster, before figures, count int) (figures, error) {
	var sum figures
	err := cluster.Eventually(ctx, fmt.Sprintf("virt-handler to count %d migrations", count), func(ctx context.Context) (bool, error) {
		now, err := readFigures(ctx, c)
		sum = now.minus(before)
		return err == nil && sum.migrations >= float64(count), err
	})
	return sum, err
}
