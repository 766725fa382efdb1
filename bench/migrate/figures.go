package migrate

import (
	"context"

	"drydock.dev/drydock/bench/cluster"
)

type figures struct {
	// migrations counts those with a known downtime; the others are sums over them.
	migrations, downtime, duration, sent float64
}

func readFigures(ctx context.Context, c *cluster.Cluster) (figures, error) {
	pods, err := c.Components(ctx, "virt-handler")
	if err != nil {
		return figures{}, err
	}
	var sum figures
	for i := range pods {
		page, err := c.Metrics(ctx, pods[i].Name)
		if err != nil {
			return figures{}, err
		}
		sum = sum.plus(figuresOf(page))
	}
	return sum, nil
}

func figuresOf(page string) figures {
	const of = "drydock_vmi_migration_"
	return figures{
		migrations: cluster.Sum(page, of+"downtime_seconds_count", ""), downtime: cluster.Sum(page, of+"downtime_seconds_sum", ""),
		duration: cluster.Sum(page, of+"duration_seconds_sum", ""), sent: cluster.Sum(page, of+"sent_bytes_sum", ""),
	}
}

func (f figures) plus(g figures) figures {
	return figures{f.migrations + g.migrations, f.downtime + g.downtime, f.duration + g.duration, f.sent + g.sent}
}

func (f figures) minus(g figures) figures {
	return figures{f.migrations - g.migrations, f.downtime - g.downtime, f.duration - g.duration, f.sent - g.sent}
}
