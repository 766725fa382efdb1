package fill

import (
	"hash"

	"drydock.dev/drydock/internal/importer/target"
)

// checkpoints write the journal at intervals, while the content continues to arrive. The zero value writes none.
type checkpoints struct {
	made    bool
	disk    *target.Disk
	journal journalStore
	// base lacks place and checksum.
	base journal
	sum  hash.Hash
	// every is the distance of checkpoints in the content, most the maximum distance from the last complete one: a killed
	// worker's successor fetches that again.
	every, most int64
	// safe is the last complete checkpoint's place, next the current one's.
	safe, next int64
	underWay   chan error
}

// at is called at each place up to which all content is written once settle returns.
func (c *checkpoints) at(place int64, settle func() error) error {
	if !c.made || place-c.safe < c.every {
		return nil
	}
	if c.underWay != nil {
		if err := c.look(place-c.safe >= c.most); err != nil || c.underWay != nil || place-c.safe < c.every {
			return err
		}
	}
	if err := settle(); err != nil {
		return err
	}
	state, err := saveSum(c.sum)
	if err != nil {
		return err
	}
	now := c.base
	now.Place, now.Sum = place, state
	c.next, c.underWay = place, make(chan error, 1)
	go func() {
		err := c.disk.Sync()
		if err == nil {
			err = c.journal.write(now)
		}
		c.underWay <- err
	}()
	return nil
}

// look collects the current checkpoint, if it is complete or wait is set.
func (c *checkpoints) look(wait bool) error {
	if wait {
		return c.wait()
	}
	select {
	case err := <-c.underWay:
		return c.arrived(err)
	default:
		return nil
	}
}

func (c *checkpoints) wait() error {
	if c.underWay == nil {
		return nil
	}
	return c.arrived(<-c.underWay)
}

func (c *checkpoints) arrived(err error) error {
	c.underWay = nil
	if err == nil {
		c.safe = c.next
	}
	return err
}
