package backup

import "github.com/locket-service/locket/db/codec"

func (h *Head) code(c *codec.Coder) {
	c.Text(&h.Engine)
	c.Wall(&h.Taken)
	c.Lease(&h.Lease)
	c.Version(&h.Floor)
	c.Lease(&h.Quarantine)
}

func (s *Server) code(c *codec.Coder) {
	c.Text(&s.Name)
	c.Lease(&s.Seen)
}

func (r *Row) code(c *codec.Coder) {
	c.Text(&r.Resource)
	c.Version(&r.Version)
	if c.Flag(&r.Counted); !r.Counted {
		return
	}
	c.Text(&r.Holder)
	codec.Signed(c, &r.Shared)
	c.Unsigned(&r.Taken)
	c.Uint32(&r.Of)
	codec.Signed(c, &r.Waiting)
}
