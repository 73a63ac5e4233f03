-- Pages and trees that have moved; used by redirects.lua. The first tree that fits counts.
return {
  pages = {
    ["/contact.php"] = "/contact/",
    ["/shop/list"] = "https://shop.example.org/list?all=1",
    ["/old-news"] = "gone",
  },
  trees = {
    { from = "/blog/archive/", to = "/archive/" },
    { from = "/blog/", to = "https://blog.example.org/" },
  },
}
