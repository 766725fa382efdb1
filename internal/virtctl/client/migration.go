package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolswatch "k8s.io/client-go/tools/watch"
	v1 "kubevirt.io/api/core/v1"
)

// ErrMigrationDeleted means that a deletion has canceled the migration.
var ErrMigrationDeleted = errors.New("it was deleted, which cancels it")

// Migrations reads a VMI's migrations, including ended ones.
func (c *Client) Migrations(ctx context.Context, namespace, vmi string) ([]v1.VirtualMachineInstanceMigration, error) {
	// Servers support different field selectors, and a namespace has few migrations.
	list := &v1.VirtualMachineInstanceMigrationList{}
	if err := c.rest.Get().Namespace(namespace).Resource(string(VirtualMachineInstanceMigrations)).Do(ctx).Into(list); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(m v1.VirtualMachineInstanceMigration) bool { return m.Spec.VMIName != vmi }), nil
}

// CancelMigration deletes a migration.
func (c *Client) CancelMigration(ctx context.Context, namespace, name string, dryRun []string) error {
	// The client's encoder would use KubeVirt's API group.
	options, err := json.Marshal(&metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}, DryRun: dryRun})
	if err != nil {
		return fmt.Errorf("encoding the options of a deletion: %w", err)
	}
	return c.rest.Delete().Namespace(namespace).Resource(string(VirtualMachineInstanceMigrations)).Name(name).
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(options).Do(ctx).Error()
}

// AwaitMigration returns an ended migration. It calls seen with each earlier state.
func (c *Client) AwaitMigration(ctx context.Context, namespace, name string, seen func(*v1.VirtualMachineInstanceMigration)) (*v1.VirtualMachineInstanceMigration, error) {
	var ended *v1.VirtualMachineInstanceMigration
	over := func(event watch.Event) (bool, error) {
		m, is := event.Object.(*v1.VirtualMachineInstanceMigration)
		switch {
		case !is:
			return false, nil
		case m.IsFinal():
			ended = m
			return true, nil
		case event.Type == watch.Deleted:
			return false, fmt.Errorf("migration %s: %w", name, ErrMigrationDeleted)
		}
		seen(m)
		return false, nil
	}
	list := c.one(Ref{VirtualMachineInstanceMigrations, namespace, name}, func() runtime.Object { return &v1.VirtualMachineInstanceMigrationList{} })
	_, err := toolswatch.UntilWithSync(ctx, list, &v1.VirtualMachineInstanceMigration{}, nil, over)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("waiting for the migration %s, which goes on: %w", name, context.Cause(ctx))
	}
	return ended, err
}

// FollowVMI calls seen with each state until ctx ends.
func (c *Client) FollowVMI(ctx context.Context, namespace, name string, seen func(*v1.VirtualMachineInstance)) error {
	_, err := toolswatch.UntilWithSync(ctx, c.oneVMI(namespace, name), &v1.VirtualMachineInstance{}, nil, func(event watch.Event) (bool, error) {
		if vmi, is := event.Object.(*v1.VirtualMachineInstance); is {
			seen(vmi)
		}
		return false, nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
