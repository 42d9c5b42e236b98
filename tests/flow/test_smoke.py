def test_fixtures(acme, globex, conn, registry):
    assert {one.slug for one in registry.by_id.values()} == {"acme", "globex"}
    assert conn.execute("select current_user").fetchone()[0].endswith("app")
